"""The report in a real browser: it opens without errors, sorts, filters, switches theme, and shows every picture.

Needs Chromium with its driver (Debian: apt-get install chromium chromium-driver) and selenium. Screenshots are kept in
the folder that KERNSIFT_SCREENSHOTS names, or in pytest's temporary folder; either is printed with -s or -rP.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kernsift

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    not BROWSER or not DRIVER, reason="no browser for the report: apt-get install chromium chromium-driver"
)

HOSTILE = "<script>document.title = 'taken over'</script>"
WIDTHS = [1280, 390]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    selenium = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install selenium")
    options = selenium.ChromeOptions()
    options.binary_location = BROWSER
    # Root in a container has no sandbox, and /dev/shm may be too small for a page.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("KERNSIFT_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"screenshots: {folder}")
    return folder


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One report of each question."""
    rng = np.random.default_rng(2)

    def sample(n: int, shift: float) -> pd.DataFrame:
        columns = {f"noise {i}": rng.normal(size=n) for i in range(9)}
        columns |= {"weight": rng.normal(shift, 1, n), HOSTILE: rng.normal(2 * shift, 1, n)}
        return pd.DataFrame(columns | {"city": rng.choice(["Rome", "Oslo"], n, p=[0.5 + shift / 3, 0.5 - shift / 3])})

    X = sample(150, 0.0)
    named = {name: rng.normal(size=(80, 3)) + shift for name, shift in (("a", 0), ("b", 1), ("c", 0))}
    five = pd.qcut(X["weight"], 5, labels=list("abcde")).astype(str)
    results = {
        "compare": kernsift.compare(X, sample(120, 1.0), k=8, random_state=0),
        "relate": kernsift.relate(X, X["weight"] * 3 + rng.normal(size=150), k=5, random_state=0),
        "classes": kernsift.relate(X, five, k=5, random_state=0),
        "screen": kernsift.screen(rng.normal(size=(80, 3)), named, k=2, random_state=0),
        "nothing": kernsift.compare(X, sample(120, 0.0), threshold=1e6, random_state=0),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, result in results.items():
        (folder / f"{name}.html").write_text(result.to_html(), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in results}


def visit(driver: Any, page: Path, width: int = 1280, height: int = 900) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(page.as_uri())


def keep(driver: Any, path: Path, width: int) -> None:
    """A picture of the whole page."""
    height = driver.execute_script("return document.documentElement.scrollHeight")
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.save_screenshot(str(path))
    assert path.stat().st_size > 10_000


def names(driver: Any) -> list[str]:
    """The names in the table that can be seen, from top to bottom."""
    script = (
        "return [...document.querySelectorAll('#features tbody tr')].filter(r => !r.hidden).map(r => r.dataset.name)"
    )
    return list(driver.execute_script(script))


def click(driver: Any, selector: str) -> None:
    driver.find_element("css selector", selector).click()


PICTURES = """
return [...document.querySelectorAll('svg.picture')].filter(s => getComputedStyle(s).display !== 'none').map(s => {
  const box = s.getBoundingClientRect();
  const marks = [...s.querySelectorAll('path, rect, circle')].filter(m => m.getBBox().width + m.getBBox().height > 0);
  const texts = [...s.querySelectorAll('text')].map(t => t.getBoundingClientRect().height);
  return [box.left, box.right, box.height, marks.length, Math.min(...texts, 99)];
})
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["compare", "relate", "classes", "screen", "nothing"])
def test_it_opens_and_shows_every_picture(
    driver: Any, pages: dict[str, Path], shots: Path, name: str, width: int
) -> None:
    visit(driver, pages[name], width)
    assert driver.get_log("browser") == []
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    pictures = driver.execute_script(PICTURES)
    assert len(pictures) == {"compare": 10, "relate": 7, "classes": 7, "screen": 4, "nothing": 1}[name]
    for left, right, height, marks, text in pictures:
        assert left >= 0
        assert right <= width
        assert height > 40
        assert marks >= 2
        assert text > 8  # letters that can be read
    keep(driver, shots / f"{name}-{width}.png", width)


def test_a_hostile_name_is_shown_and_not_run(driver: Any, pages: dict[str, Path]) -> None:
    visit(driver, pages["compare"])
    assert driver.title == "What differs between the two samples"
    assert HOSTILE in names(driver)
    assert HOSTILE in driver.find_element("css selector", "#features").text


def test_a_script_from_outside_would_not_run(driver: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "tampered.html"
    page.write_text(pages["compare"].read_text(encoding="utf-8").replace("</body>", HOSTILE + "</body>"))
    visit(driver, page)
    assert driver.title == "What differs between the two samples"
    log = driver.get_log("browser")
    assert len(log) == 1
    assert "Content Security Policy" in log[0]["message"]


def test_sorting(driver: Any, pages: dict[str, Path]) -> None:
    visit(driver, pages["compare"])
    best_first = names(driver)
    click(driver, "[data-key=name]")
    assert names(driver) != best_first
    ascending = names(driver)
    click(driver, "[data-key=name]")
    assert names(driver) == ascending[::-1]
    assert driver.find_element("css selector", "th[aria-sort]").text.startswith("feature")
    assert driver.find_element("css selector", "#sorted").text == "sorted by name"
    click(driver, "[data-key=rank]")
    assert names(driver) == best_first
    for key, sign in (("p", 1), ("adjusted", 1), ("score", -1), ("effect", -1)):
        click(driver, f"[data-key={key}]")
        script = f"return [...document.querySelectorAll('#features tbody tr')].map(r => Number(r.dataset.{key}))"
        values = [sign * value for value in driver.execute_script(script)]
        assert values == sorted(values)
    assert driver.get_log("browser") == []


def test_a_report_opens_in_the_order_that_was_asked_for(driver: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    # Of two equal changes the one with fewer rows has the same effect and less evidence.
    X, Y = rng.normal(size=(300, 3)), rng.normal([0.8, 1.0, 0.0], size=(300, 3))
    X[60:, 1] = np.nan
    result = kernsift.compare(
        pd.DataFrame(X, columns=list("cab")), pd.DataFrame(Y, columns=list("cab")), random_state=0
    )
    words = {"p": "evidence, strongest first", "effect": "effect, largest first", "name": "name"}
    for sort, said in words.items():
        result.save(tmp_path / "sorted.html", sort=sort)
        visit(driver, tmp_path / "sorted.html")
        assert names(driver) == result.to_frame(sort=sort)["feature"].tolist()
        assert driver.find_element("css selector", "#sorted").text == f"sorted by {said}"
    assert len({tuple(result.to_frame(sort=sort)["feature"]) for sort in words}) == 3


@pytest.mark.parametrize("width", WIDTHS)
def test_filtering(driver: Any, pages: dict[str, Path], width: int) -> None:
    visit(driver, pages["compare"], width)
    everything = names(driver)
    search = driver.find_element("css selector", "#search")
    search.send_keys("NOISE")
    assert names(driver) == [name for name in everything if "noise" in name]
    assert driver.find_element("css selector", "#count").text == f"{len(names(driver))} of {len(everything)}"
    cards = "return [...document.querySelectorAll('.card')].filter(c => c.checkVisibility()).map(c => c.dataset.name)"
    assert driver.execute_script(cards) == names(driver)
    search.clear()
    search.send_keys(" ", "\b")
    assert names(driver) == everything
    click(driver, "#significant")
    assert {"weight", HOSTILE} <= set(names(driver)) < set(everything)
    assert driver.get_log("browser") == []


def test_all_of_many_features_can_be_found(driver: Any, tmp_path: Path) -> None:
    """Twenty thousand features: the page opens with the first, and finds and sorts all of them."""
    rng = np.random.default_rng(0)
    d = 20_000
    X, Y = rng.normal(size=(10, d)), rng.normal(size=(10, d))
    Y[:, 123] += 50
    page = tmp_path / "many.html"
    kernsift.compare(X, Y, kernel="linear", random_state=0).to_html(page)
    visit(driver, page)
    assert len(names(driver)) == 200
    driver.execute_script("document.getElementById('more').click()")
    assert len(names(driver)) == 400
    search = driver.find_element("css selector", "#search")
    search.send_keys("x19999")
    assert names(driver) == ["x19999"]
    assert driver.find_element("css selector", "#count").text == "1 of 20,000"
    search.clear()
    search.send_keys(" ", "\b")
    driver.execute_script("document.querySelector('[data-key=name]').click()")
    assert names(driver)[:3] == ["x0", "x1", "x2"]
    assert driver.find_element("css selector", "#sorted").text == "sorted by name"
    # Sorting all rows takes a fraction of a second; ten are far from it on the slowest machine.
    script = "const start = performance.now(); document.querySelector('[data-key=p]').click();"
    took = driver.execute_script(f"{script} return performance.now() - start")
    assert took < 10_000
    assert names(driver)[0] == "x123"
    assert driver.get_log("browser") == []


def test_features_outside_a_short_list_can_be_shown(driver: Any, pages: dict[str, Path]) -> None:
    visit(driver, pages["compare"])
    assert len(names(driver)) == 8
    click(driver, "#outside")
    assert len(names(driver)) == 12
    assert "not on the list" in driver.find_element("css selector", "#features").text
    click(driver, "#outside")
    assert len(names(driver)) == 8


def test_the_theme_switches(driver: Any, pages: dict[str, Path], shots: Path) -> None:
    visit(driver, pages["compare"])
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = driver.execute_script(colour)
    click(driver, "#theme")
    dark = driver.execute_script(colour)
    assert dark != light
    keep(driver, shots / "compare-dark.png", 1280)
    visit(driver, pages["compare"])
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    assert driver.execute_script(colour) == dark
    click(driver, "#theme")
    assert driver.execute_script(colour) == light
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_it_prints(driver: Any, pages: dict[str, Path], shots: Path) -> None:
    import base64

    visit(driver, pages["compare"])
    pdf = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])
    (shots / "compare.pdf").write_bytes(pdf)
    assert pdf.startswith(b"%PDF")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    hidden = "return ['#theme', '.controls'].map(s => getComputedStyle(document.querySelector(s)).display)"
    assert driver.execute_script(hidden) == ["none", "none"]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
