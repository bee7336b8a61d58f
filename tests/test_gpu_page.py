"""The page on GPUs says what the result file says."""

import json

from benchmarks.gpu_tables import BEGIN, END, PAGE, RESULT, figures


def test_the_page_has_the_figures_of_the_result_file():
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip()
    assert text == figures(json.loads(RESULT.read_text()))
