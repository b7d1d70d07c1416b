#!/usr/bin/python3
"""Opens the report in a real, headless Chromium and checks what a reader would see and do.

    browser_test.py --make-page build/tests/run/run_make_page [--shots FOLDER]

What the charts draw is read back from their lines' coordinates and the labels of their axes, and
compared with the run's own metrics. There are no sleeps: every wait is for a condition, with a
deadline.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CHROMIUM = "/usr/bin/chromium"
DRIVER = "/usr/bin/chromedriver"
DEADLINE_SECONDS = 30

try:
    from selenium import webdriver
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError as error:
    sys.exit(f"browser_test: {error}; install Debian's python3-selenium and run with /usr/bin/python3")

# Of a chart: the points of its lines and dots, and where its axes have their labels, in pixels of its picture.
READ_CHART = r"""
const chart = document.querySelector(arguments[0]);
const ticks = kind => Array.from(chart.querySelectorAll("." + kind), each =>
  [Number(each.getAttribute(kind === "x-tick" ? "x" : "y")) - (kind === "x-tick" ? 0 : 4), each.textContent]);
const points = path => Array.from(path.getAttribute("d").matchAll(/[ML]([-\d.]+) ([-\d.]+)/g), each => [Number(each[1]), Number(each[2])]);
const paths = selector => Object.fromEntries(Array.from(chart.querySelectorAll(selector), each => [each.dataset.series, points(each)]));
return {x: ticks("x-tick"), y: ticks("y-tick"), line: paths("path.line"), raw: paths("path.raw"),
        dots: Array.from(chart.querySelectorAll("circle"), each => [Number(each.getAttribute("cx")), Number(each.getAttribute("cy"))])};
"""

CONTRAST = r"""
const seen = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const rgb = colour => { seen.fillStyle = colour; seen.fillRect(0, 0, 1, 1); return Array.from(seen.getImageData(0, 0, 1, 1).data.slice(0, 3)); };
const light = colour => { const [r, g, b] = rgb(colour).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                          return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const backOf = element => { for (let at = element; at; at = at.parentElement) { const back = getComputedStyle(at).backgroundColor;
                            if (!back.endsWith(", 0)") && back !== "transparent") return back; } return "#fff"; };
const worst = [];
for (const element of document.querySelectorAll("h1, h2, h3, p, td, th, dt, dd, li, .tile *, .suggestion *, .badge, summary, .keys span, nav a, .stack i")) {
  if (!element.textContent.trim() || !element.offsetParent || element.closest("iframe")) continue;
  const [a, b] = [light(getComputedStyle(element).color), light(backOf(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) worst.push([element.className || element.tagName, element.textContent.slice(0, 30), Math.round(ratio * 100) / 100]);
}
return worst;
"""


class Page:
    """A page under test, and the reader's hands and eyes."""

    def __init__(self, path):
        self.url = pathlib.Path(path).resolve().as_uri()
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        arguments = ["--headless=new", "--window-size=1360,1600", "--force-device-scale-factor=1",
                     "--force-color-profile=srgb", "--disable-dev-shm-usage", "--hide-scrollbars"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        for argument in arguments:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.driver.set_page_load_timeout(DEADLINE_SECONDS)
        self.driver.set_script_timeout(DEADLINE_SECONDS)

    def open(self, url=None):
        self.prefer("light")
        self.driver.get(url or self.url)
        self.until(lambda: self.run("return document.querySelectorAll('#run table').length > 0"), "the page was not made")

    def run(self, script, *args):
        return self.driver.execute_script(script, *args)

    def until(self, condition, what):
        WebDriverWait(self.driver, DEADLINE_SECONDS, 0.02).until(lambda _: condition(), what)

    def prefer(self, scheme):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def texts(self, selector):
        return self.run("return Array.from(document.querySelectorAll(arguments[0]), each => each.textContent)", selector)

    def chart(self, selector):
        return self.run(READ_CHART, selector)

    def tile(self, name):
        return self.run("""
            const tile = Array.from(document.querySelectorAll(".tile")).find(each => each.querySelector(".name").textContent === arguments[0]);
            return tile && [tile.querySelector(".value").textContent, tile.querySelector(".under").textContent];""", name)

    def press(self, key):
        ActionChains(self.driver).send_keys(key).perform()

    def shoot(self, name):
        if options.shots:
            size = self.run("return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
            shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": {
                "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}})
            import base64
            (pathlib.Path(options.shots) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


def number(text):
    """A label of an axis as a number: 1,000 or 2.5e-4 or 12.5%."""
    value = float(re.sub(r"[,%]", "", text))
    return value / 100 if text.endswith("%") else value


def scale(ticks):
    """What turns a pixel into a value, by the first and the last label of an axis."""
    (first, low), (last, high) = ticks[0], ticks[-1]
    low, high = number(low), number(high)
    return lambda pixel: low + (pixel - first) / (last - first) * (high - low)


class ReportPage(unittest.TestCase):
    def setUp(self):
        page.open()

    def tearDown(self):
        self.assertEqual(page.driver.get_log("browser"), [], "the browser logged something")

    def check_line(self, chart, drawn, steps, values):
        to_step, to_value = scale(chart["x"]), scale(chart["y"])
        self.assertEqual(len(drawn), len(values))
        top = max(to_value(y) for y in (each[0] for each in chart["y"]))
        height = abs(top - min(to_value(each[0]) for each in chart["y"]))
        within = 0
        for (x, y), step, value in zip(drawn, steps, values):
            self.assertAlmostEqual(to_step(x), step, delta=0.6 + 0.002 * steps[-1])
            within += abs(to_value(y) - value) <= 0.02 * height
        # A few wild ones are drawn at the edge.
        self.assertGreaterEqual(within, 0.98 * len(values))

    def test_loss_curve_is_that_of_the_metrics(self):
        chart = page.chart("#loss")
        self.check_line(chart, chart["raw"]["training"], [each["step"] for each in steps], [each["loss"] for each in steps])
        to_step, to_value = scale(chart["x"]), scale(chart["y"])
        self.assertEqual(len(chart["dots"]), len(validations))
        for (x, y), each in zip(chart["dots"], validations):
            self.assertAlmostEqual(to_step(x), each["step"], delta=1.5)
            self.assertAlmostEqual(to_value(y), each["validation"]["loss"], delta=0.05)
        page.shoot("report_light")

    def test_throughput_is_that_of_the_metrics(self):
        chart = page.chart("#speed")
        self.check_line(chart, chart["raw"]["samples/s"], [each["step"] for each in steps],
                        [each["samples_per_second"] for each in steps])
        self.assertEqual(number(chart["y"][0][1]), 0)

    def test_the_smooth_line_lies_within_the_noise(self):
        chart = page.chart("#loss")
        smooth = chart["line"]["training"]
        raw = [y for _, y in chart["raw"]["training"]]
        self.assertEqual(len(smooth), len(raw))
        for index in range(60, len(raw)):
            near = raw[max(0, index - 40):index + 1]
            self.assertTrue(min(near) <= smooth[index][1] <= max(near))
        jumps = lambda line: sum(abs(a - b) for a, b in zip(line, line[1:]))
        self.assertLess(jumps([y for _, y in smooth]), 0.3 * jumps(raw))

    def test_figures_are_those_of_the_json(self):
        self.assertEqual(page.run("return document.title"), "sample: pipewright report")
        self.assertEqual(page.texts("#state"), ["finished"])
        self.assertAlmostEqual(float(page.tile("loss")[0]), facts["final_loss"], delta=1e-3)
        self.assertAlmostEqual(float(page.tile("speed")[0].split()[0]), facts["samples_per_second"], delta=0.1)
        self.assertEqual(page.tile("bubble")[0], f"{100 * facts['bubble_fraction']:.1f}%")
        self.assertEqual(page.tile("trained")[0].split()[0], "300")
        self.assertIn("640 MiB", page.tile("peak memory a rank")[1])
        self.assertIn("4 ranks", page.texts("#subtitle")[0])

    def test_breakdown_is_drawn_to_scale(self):
        bars = page.run("""
            return Array.from(document.querySelectorAll("#time .stack:not(.low)"), bar => Array.from(bar.children, each =>
              [each.dataset.part, each.getBoundingClientRect().width / bar.getBoundingClientRect().width]));""")
        self.assertEqual(len(bars), 2)
        for bar, shares in zip(bars, (facts["breakdown"]["measured"], facts["breakdown"]["predicted"])):
            self.assertEqual([name for name, _ in bar], [name for name, share in shares.items() if share > 1e-9])
            for name, width in bar:
                self.assertAlmostEqual(width, shares[name], delta=0.01)

    def test_every_suggestion_has_its_gain_and_its_settings(self):
        faster = facts["advice"]["faster"]
        self.assertGreaterEqual(len(faster), 3)
        drawn = page.run("""
            return Array.from(document.querySelectorAll("#advice > .suggestions:first-of-type > .suggestion"), each => ({
              gain: each.querySelector(".gain").firstChild.textContent, what: each.querySelector(".what").textContent,
              code: Array.from(each.querySelectorAll("code"), code => code.textContent),
              bars: Array.from(each.querySelectorAll(".track i"), bar => bar.getBoundingClientRect().width)}));""")
        self.assertEqual(len(drawn), len(faster))
        for item, one in zip(drawn, faster):
            self.assertEqual(item["what"], one["title"])
            self.assertEqual(item["gain"], f"+{100 * (one['speedup'] - 1):.1f}%")
            self.assertEqual(item["code"], ["--set " + setting for setting in one["settings"]])
            now, then = item["bars"]
            self.assertAlmostEqual(then / now, 1 / one["speedup"], delta=0.02)

    def test_memory_bars_are_to_scale_with_plan_and_budget(self):
        rows = page.run("""
            return Array.from(document.querySelectorAll("#memory .memory"), bar => {
              const place = bar.getBoundingClientRect(), of = tag => bar.querySelector(tag).getBoundingClientRect();
              return {measured: of("i").width / place.width, plan: (of("u").left + 1 - place.left) / place.width,
                      budget: (of("s").left - place.left) / place.width};});""")
        self.assertEqual(len(rows), 4)
        for row, measured, plan in zip(rows, facts["peak_bytes"], facts["predicted_peak_bytes"]):
            whole = facts["memory_bytes"] / row["budget"]
            self.assertAlmostEqual(row["measured"], measured / whole, delta=0.01)
            self.assertAlmostEqual(row["plan"], plan / whole, delta=0.01)

    def test_the_step_is_drawn_measured_and_predicted(self):
        frame = page.driver.find_element(By.ID, "frame")
        page.driver.switch_to.frame(frame)
        try:
            page.until(lambda: page.run("return window.pipewright && pipewright.frames > 0 && pipewright.settled"), "no timeline")
            names = page.run("return Array.from(document.querySelectorAll('h2'), each => each.textContent)")
            self.assertEqual(names, ["Measured: step 300", "Predicted by the plan"])
            boxes = page.run("return pipewright.numBoxes")
            self.assertGreater(boxes, 2 * 2 * 4 * 8)  # F and B of 4 ranks and 8 micro-batches, twice
            high = page.run("return document.getElementById('stack').getBoundingClientRect().bottom")
        finally:
            page.driver.switch_to.default_content()
        self.assertGreaterEqual(frame.size["height"], high - 1)
        self.assertLess(frame.size["height"], high + 60)

    def test_is_read_without_a_mouse(self):
        chart = page.driver.find_element(By.CSS_SELECTOR, "#loss svg")
        page.run("arguments[0].focus()", chart)
        page.press(Keys.END)
        page.until(lambda: not page.run("return document.querySelector('#loss .readout').hidden"), "End showed nothing")
        self.assertIn("step 300", page.texts("#loss .readout")[0])
        page.press(Keys.ARROW_LEFT)
        page.until(lambda: "step 299" in page.texts("#loss .readout")[0], "the left arrow did nothing")
        self.assertIn("step 299", page.texts("#loss [aria-live]")[0])
        page.press(Keys.ESCAPE)
        page.until(lambda: page.run("return document.querySelector('#loss .readout').hidden"), "Escape did nothing")
        summary = page.driver.find_element(By.CSS_SELECTOR, "#loss summary")
        page.run("arguments[0].focus()", summary)
        page.press(Keys.ENTER)
        page.until(lambda: page.run("return document.querySelector('#loss details').open"), "Enter did not open the table")
        self.assertEqual(page.texts("#loss tbody tr:last-child td")[0], "300")

    def test_tab_reaches_everything_that_can_be_used(self):
        page.run("document.body.focus(); window.scrollTo(0, 0)")
        reached = set()
        for _ in range(60):
            page.press(Keys.TAB)
            reached.add(page.run("const e = document.activeElement; return e.tagName + (e.id ? '#' + e.id : '') + (e.hash || '')"))
        for wanted in ("BUTTON#theme", "A#memory", "A#advice", "svg", "SUMMARY", "IFRAME#frame"):
            self.assertTrue(any(each.startswith(wanted) for each in reached), f"{wanted} not among {reached}")

    def test_hover_reads_the_nearest_step(self):
        chart = page.driver.find_element(By.CSS_SELECTOR, "#speed svg")
        page.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", chart)
        place = page.run("const at = arguments[0].getBoundingClientRect(); return [at.right, at.top + at.height / 2]", chart)
        actions = ActionChains(page.driver, duration=0)
        actions.w3c_actions.pointer_action.move_to_location(round(place[0] - 6), round(place[1]))
        actions.perform()
        page.until(lambda: "step 300" in "".join(page.texts("#speed .readout")), "no readout at the right edge")

    def test_dark_by_button_and_by_preference(self):
        back = lambda: page.run("return getComputedStyle(document.body).backgroundColor")
        theme = lambda: page.run("return document.getElementById('frame').contentDocument.documentElement.dataset.theme")
        light = back()
        page.driver.find_element(By.ID, "theme").click()
        page.until(lambda: back() != light, "the button did not change the theme")
        dark = back()
        page.until(lambda: theme() == "dark", "the timeline did not follow")
        self.assertEqual(page.run(CONTRAST), [])
        page.shoot("report_dark")
        page.driver.find_element(By.ID, "theme").click()
        page.until(lambda: back() == light and theme() == "light", "the button did not change back")
        page.prefer("dark")
        page.until(lambda: back() == dark, "the page does not follow the preference")

    def test_text_contrasts_with_what_it_stands_on(self):
        self.assertEqual(page.run(CONTRAST), [])

    def test_fits_a_narrow_window(self):
        page.driver.set_window_size(480, 900)
        try:
            page.until(lambda: page.run("return window.innerWidth < 600"), "the window did not shrink")
            self.assertLessEqual(page.run("return document.documentElement.scrollWidth - window.innerWidth"), 0)
            page.shoot("report_narrow")
        finally:
            page.driver.set_window_size(1360, 1600)

    def test_dropped_steps_are_told(self):
        notes = page.texts("#notes li")
        self.assertTrue(any("continued from step 135: 15 steps" in note for note in notes), notes)
        self.assertEqual(page.run("return document.querySelectorAll('#loss .mark').length"), 1)

    def test_loads_nothing(self):
        self.assertEqual(page.run("return performance.getEntriesByType('resource').map(e => e.name)"), [])

    def test_a_run_of_which_nothing_is_known(self):
        page.open(pathlib.Path(bare).resolve().as_uri())
        self.assertEqual(page.texts("#title"), ["bare"])
        self.assertIn("</script>", page.texts("#subtitle")[0])
        self.assertIn("Nothing was logged.", page.texts("#loss")[0])
        self.assertIn("no plan.json", page.texts("#advice")[0])
        self.assertGreaterEqual(len(page.texts("#notes li")), 3)
        page.shoot("bare")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make-page", required=True, help="the program run_make_page")
    parser.add_argument("--shots", help="a folder for screenshots")
    options = parser.parse_args()
    for program, package in ((CHROMIUM, "chromium"), (DRIVER, "chromium-driver")):
        if not os.access(program, os.X_OK):
            sys.exit(f"browser_test: {program} is missing; install Debian's {package}")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.make_page, folder], check=True)
        facts = json.loads(pathlib.Path(folder, "report.json").read_text())
        lines = [json.loads(line) for line in pathlib.Path(folder, "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "validation" not in line]
        validations = [line for line in lines if "validation" in line]
        bare = f"{folder}/bare.html"
        page = Page(f"{folder}/report.html")
        try:
            result = unittest.main(argv=[sys.argv[0]], exit=False, verbosity=2).result
        finally:
            page.driver.quit()
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
