"""What MkDocs calls while it builds the documentation."""

from __future__ import annotations

import importlib.util
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
    """Add the pages to the navigation that may or may not be there."""
    docs = Path(config.docs_dir)
    for entry in config.nav:
        for section, pages in _scripts().OPTIONAL.items():
            there = {title: name for title, name in pages.items() if (docs / name).exists()}
            if section in entry:
                entry[section] += [{title: name} for title, name in there.items()]
    return config


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
