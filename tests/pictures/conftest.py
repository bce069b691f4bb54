"""The browser that the tests of the page drive."""

import shutil

import pytest
from browser import Visit

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium():
    """A browser, or a skip that says what is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as driver:
        # The sandbox needs rights that containers lack; the pages are our own.
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, tmp_path):
    """A function that writes a trace's page, opens it, and fails on any request or error."""
    visits = []

    def open_page(trace, fragment="", script=None, size=(1440, 1000), scheme="light", **options):
        path = trace.page(tmp_path / f"{len(visits)}.html", **options)
        context = chromium.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme,
            permissions=["clipboard-read", "clipboard-write"],
        )  # fmt: skip
        page = context.new_page()
        visit = Visit(page, path.as_uri())
        visits.append((context, visit))
        if script:
            page.add_init_script(script)
        page.goto(visit.address + fragment)
        if not script:
            visit.settle()
        return visit

    yield open_page
    for context, visit in visits:
        context.close()
        assert visit.requests == [visit.address], f"the page asked for {visit.requests}"
        assert visit.errors == [], visit.errors
