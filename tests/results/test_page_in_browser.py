"""The report page in headless Chromium: sorting, hovering, keyboard, light and dark colours, and a phone's width."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from fedwca.results.read_run import read_run
from fedwca.results.report.page import page

from .runs import write_run

selenium = pytest.importorskip("selenium", reason="selenium is not installed (pip install fedwca[browser])")
DRIVER = shutil.which("chromedriver")
LONG = "fedwca:ta=0.05,tb=0.1/clusterer=finch:signature=2/objective=shot"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(not (DRIVER and CHROMIUM), reason="Chromium and its chromedriver are not installed"),
    # selenium leaves a socket to the interpreter when it ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    driver.set_page_load_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    first, second = write_run(folder / "first", methods=4), write_run(folder / "second", trials=1, methods=3)
    for name in ("config.json", "summary.json"):
        text = (first / name).read_text(encoding="utf-8")
        (first / name).write_text(text.replace('"method 1"', f'"{LONG}"'), encoding="utf-8")
    runs = [read_run(first), read_run(second)]
    (folder / "report.html").write_text(page(runs, ["first", '<b>second</b> & "']), encoding="utf-8")
    return (folder / "report.html").as_uri()


@pytest.fixture
def view(browser: Any, address: str) -> Any:
    """The page, newly loaded at the width of a desktop; after each test the console has to be without errors."""
    resize(browser, 1200, dark=False)
    browser.get(address)
    browser.execute_script("localStorage.clear()")
    browser.get(address)
    yield browser
    assert browser.get_log("browser") == []


def resize(browser: Any, width: int, dark: bool) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def column(view: Any, table: str, number: int) -> list[str]:
    script = (
        "return [...document.querySelector(arguments[0]).tBodies[0].rows].map(r => r.cells[arguments[1]].textContent)"
    )
    cells: list[str] = view.execute_script(script, table, number)
    return cells


def background(view: Any) -> str:
    return str(view.execute_script("return getComputedStyle(document.body).backgroundColor"))


def test_a_heading_sorts_by_click_and_by_key(view: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    heads = view.find_elements("css selector", "#summary thead th")
    names = [head.text.split()[0] for head in heads]
    index = names.index("mean")
    heads[index].find_element("tag name", "button").click()
    values = [float(text.split()[0]) for text in column(view, "#summary", index)]
    assert values == sorted(values, reverse=True)
    assert heads[index].get_attribute("aria-sort") == "descending"
    heads[index].find_element("tag name", "button").send_keys(Keys.ENTER)
    values = [float(text.split()[0]) for text in column(view, "#summary", index)]
    assert values == sorted(values)
    heads[1].find_element("tag name", "button").send_keys(Keys.SPACE)
    assert column(view, "#summary", 1) == sorted(column(view, "#summary", 1), key=str.lower)
    assert heads[index].get_attribute("aria-sort") == "none"


def test_a_pointer_and_arrow_keys_read_the_chart(view: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    chart = view.find_element("css selector", ".chart svg[tabindex]")
    tip = view.find_element("id", "tip")
    assert not tip.is_displayed()
    ActionChains(view).move_to_element(chart).perform()
    assert "after round 2" in tip.text
    assert "FedWCA:" in tip.text
    assert " ± " in tip.text
    ActionChains(view).move_to_element(view.find_element("tag name", "h1")).perform()
    assert not tip.is_displayed()
    chart.send_keys(Keys.HOME)
    assert "source model" in tip.text
    chart.send_keys(Keys.ARROW_RIGHT)
    assert "after round 1" in tip.text
    chart.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_the_legend_takes_lines_away(view: Any) -> None:
    legend = view.find_elements("css selector", ".run:first-child .legend")[0]
    button = legend.find_elements("tag name", "button")[-1]

    def lines() -> int:
        return len(view.find_elements("css selector", ".run:first-child [data-part=curves] path[fill=none]"))

    line_count = lines()
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert lines() == line_count - 1
    button.click()
    assert lines() == line_count


def test_a_client_is_opened(view: Any) -> None:
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    part = view.find_element("css selector", ".run:first-child [data-part=clients]")
    assert len(part.find_elements("css selector", "tbody tr")) == 6
    part.find_elements("css selector", ".client")[2].send_keys(Keys.ENTER)
    assert "Client 2 (target1)" in part.text
    weights = part.find_elements("css selector", ".heat tbody tr")
    assert len(weights) == 4
    shares = [float(cell.text) for cell in weights[-1].find_elements("tag name", "td")[1:]]
    assert sum(shares) == pytest.approx(1, abs=0.02)
    Select(part.find_elements("tag name", "select")[0]).select_by_visible_text("Source Only")
    assert "Client 2 (target1)" not in part.text


def test_light_and_dark(view: Any, address: str) -> None:
    assert background(view) == "rgb(255, 255, 255)"
    resize(view, 1200, dark=True)
    dark = background(view)
    assert dark != "rgb(255, 255, 255)"
    button = view.find_element("id", "theme")
    button.click()
    assert button.get_attribute("aria-label") == "Colours: light"
    assert background(view) == "rgb(255, 255, 255)"
    button.click()
    resize(view, 1200, dark=False)
    assert background(view) == dark
    view.get(address)
    assert background(view) == dark, "the choice is remembered"


def test_the_mean_stands_first_on_a_phone(view: Any) -> None:
    script = "return [...document.querySelectorAll('#summary thead th')].map(h => h.innerText.split(' ')[0].trim())"
    wide_headings, means = view.execute_script(script), column(view, "#summary", 5)
    assert wide_headings[2] == "target0"
    resize(view, 380, dark=False)
    assert view.execute_script(script)[2] == "mean"
    assert column(view, "#summary", 2) == means
    resize(view, 1200, dark=False)
    assert view.execute_script(script) == wide_headings


def test_a_line_in_the_legend_is_that_of_its_curve(view: Any) -> None:
    dashes = view.execute_script(
        "const part = document.querySelector('.run [data-part=curves]');"
        "const of = (found) => [...part.querySelectorAll(found)].map(e => e.getAttribute('stroke-dasharray') || '');"
        "return [of('.legend line'), of('path[fill=none]')]"
    )
    assert dashes[0] == dashes[1]
    assert dashes[0][0] == "6 4", "a level line is dashed"


def test_a_phone_scrolls_in_one_direction(view: Any) -> None:
    resize(view, 380, dark=False)
    view.refresh()
    assert view.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    sizes = view.execute_script(
        "return [...document.querySelectorAll('.chart')].map(c => c.getBoundingClientRect().width)"
    )
    assert max(sizes) <= 380
    assert LONG in column(view, "#summary", 1)
    left = "return document.querySelector('#summary tbody td').getBoundingClientRect().left"
    assert view.execute_script(left) < 260, "numbers are seen beside a long name"


def test_headings_of_clients_stay_in_sight(view: Any) -> None:
    tops = view.execute_script(
        "const box = document.querySelector('[data-part=clients] .wide'); box.style.maxHeight = '12rem';"
        "box.scrollTop = 150; const top = (e) => e.getBoundingClientRect().top;"
        "return [box.scrollTop, top(box.querySelector('thead th')) - top(box)]"
    )
    assert tops[0] > 50
    assert tops[1] == pytest.approx(0, abs=1)


def test_everything_that_acts_is_reached_by_tab_and_named(view: Any) -> None:
    unnamed = view.execute_script(
        "return [...document.querySelectorAll('button, select, svg[tabindex], [role=region]')]"
        ".filter(e => !(e.textContent.trim() || e.getAttribute('aria-label'))).length"
    )
    assert unnamed == 0
    assert view.execute_script("return [...document.querySelectorAll('[tabindex]')].every(e => e.tabIndex === 0)")


def test_names_are_text(view: Any) -> None:
    heading = view.find_element("id", "run-1")
    assert heading.text == '<b>second</b> & "'
    assert view.find_elements("css selector", ".cautions")[1].text.startswith("There is one run only")
