"use strict";
(() => {
  const tip = document.getElementById("tip");
  const graph = document.querySelector(".graph");

  // The tooltip: text only, near the pointer and within the window.
  const show = (event) => {
    const target = event.target.closest("[data-tip]");
    tip.hidden = !target;
    if (!target) return;
    tip.textContent = target.dataset.tip;
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const above = event.clientY - tip.offsetHeight - 12;
    const y = above > 4 ? above : event.clientY + 18;
    tip.style.transform = `translate(${Math.max(8, x)}px, ${y}px)`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // A sequence is chosen: everything that belongs to another is hidden.
  document.getElementById("choose")?.addEventListener("change", (event) => {
    for (const part of document.querySelectorAll("[data-choice]")) {
      part.hidden = part.dataset.choice !== event.target.value;
    }
  });

  // In the graph, a state that is pointed at stands out with its own transitions.
  if (!graph) return;
  const pick = (state) => {
    graph.classList.toggle("picked", state !== undefined);
    const near = new Set([state]);
    for (const edge of graph.querySelectorAll(".edge")) {
      const { from, to } = edge.dataset;
      const on = from === state || to === state;
      edge.classList.toggle("on", on);
      if (on) near.add(from).add(to);
    }
    for (const node of graph.querySelectorAll(".node")) {
      node.classList.toggle("on", near.has(node.dataset.state));
    }
  };
  const over = (event) => pick(event.target.closest(".node")?.dataset.state);
  graph.addEventListener("pointermove", over);
  graph.addEventListener("pointerdown", over);
  graph.addEventListener("pointerleave", () => pick(undefined));
})();
