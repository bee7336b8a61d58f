"""A headless Chromium for the tests, or a true reason why there is none."""

import shutil
from contextlib import contextmanager

import pytest


def why_no_browser():
    """What is missing, or None."""
    for name, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver")):
        if shutil.which(name) is None:
            return f"there is no {name} here: apt-get install {package}"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "there is no selenium here: pip install selenium"
    return None


needs_browser = pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser()))


@contextmanager
def browser(profile, width=1280, height=900, *, dark=False):
    """Start Chromium with an empty profile, a window size and a colour scheme."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--hide-scrollbars", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(argument)
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        look(driver, width, height, dark=dark)
        yield driver
    finally:
        driver.quit()


def look(driver, width, height, *, dark=False):
    """Give the window a size, which below 600 is a phone's, and a colour scheme."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})


def screenshot(driver, path):
    """Save a picture of the whole page."""
    import base64

    options = {"captureBeyondViewport": True, "format": "png"}
    picture = driver.execute_cdp_cmd("Page.captureScreenshot", options)
    path.write_bytes(base64.b64decode(picture["data"]))


def point_at(driver, selector):
    """Scroll an element into view, let the page settle, and move the pointer onto it."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    element = driver.find_element(By.CSS_SELECTOR, selector)
    driver.execute_async_script(
        "const [element, done] = arguments; element.scrollIntoView({block: 'center'});"
        "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))",
        element,
    )
    ActionChains(driver).move_to_element(element).perform()


def problems(driver):
    """Return what the console says: errors of scripts, refused resources."""
    return [f"{entry['level']}: {entry['message']}" for entry in driver.get_log("browser")]
