"""What MkDocs calls while it builds the documentation."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files


def _scripts() -> Any:
    """Load the module beside this one, which is in no package."""
    here = Path(__file__).with_name("scripts.py")
    spec = importlib.util.spec_from_file_location("docs_scripts", here)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def on_config(config: Any) -> Any:
    """Add optional pages to the navigation where they exist."""
    docs = Path(config.docs_dir)
    for entry in config.nav:
        for section, pages in _scripts().OPTIONAL.items():
            there = {title: name for title, name in pages.items() if (docs / name).exists()}
            if section in entry:
                entry[section] += [{title: name} for title, name in there.items()]
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **kwargs: Any) -> str:
    """Name files of the repository that are no pages by their path; the site does not have them."""
    folder = Path(config.docs_dir, page.file.src_uri).parent

    def named(match: re.Match[str]) -> str:
        target = (folder / match.group(2)).resolve()
        root = Path(config.docs_dir).parent.resolve()
        if target.is_relative_to(config.docs_dir) or not target.exists():
            return match.group(0)
        return f"{match.group(1)} (`{target.relative_to(root)}`)"

    return re.sub(r"\[([^\]]+)\]\((\.\./[^)#]+)\)", named, markdown)


def on_files(files: Files, config: Any) -> Files:
    """Run the scripts that are pages, and add what they make."""
    docs, scripts = Path(config.docs_dir), _scripts()
    for path in scripts.find(docs):
        page = scripts.run(path)
        folder = path.parent.relative_to(docs)
        made = {f"{path.stem}.md": page.markdown, **page.pictures}
        for name, content in made.items():
            files.append(File.generated(config, str(folder / name), content=content))
    return files
