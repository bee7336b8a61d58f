"""The pages say of GPUs what the result files say."""

import json

import pytest

from benchmarks.gpu_tables import RESULTS, SECTIONS, section


@pytest.mark.parametrize("name", list(SECTIONS))
def test_the_page_has_the_figures_of_the_result_file(name):
    page, file, write = SECTIONS[name]
    _, text, _ = section(name, page.read_text())
    assert text == write(json.loads((RESULTS / file).read_text()))
