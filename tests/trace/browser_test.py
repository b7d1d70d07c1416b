#!/usr/bin/python3
"""Opens the timeline page in a real, headless Chromium and checks what a reader would see and do.

    browser_test.py --make-page build/tests/trace_make_page [--shots FOLDER]
    browser_test.py --page timeline.html --expect timeline.json

What is drawn is counted at the canvas and looked up in screenshots; the page's own claims only say
where to look. There are no sleeps: every wait is for a condition, with a deadline.
"""

import argparse
import collections
import json
import os
import pathlib
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
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError as error:
    sys.exit(f"browser_test: {error}; install Debian's python3-selenium and run with /usr/bin/python3")

# By canvas, the rectangles filled since it was last cleared: what the newest frame consists of.
RECORD_RECTANGLES = """
const proto = CanvasRenderingContext2D.prototype;
const {clearRect, fillRect} = proto;
proto.clearRect = function(...args) { this.canvas.rectangles = []; return clearRect.apply(this, args); };
proto.fillRect = function(...args) {
  (this.canvas.rectangles ||= []).push([this.fillStyle, this.globalAlpha]);
  return fillRect.apply(this, args);
};
"""

# The colours of the screen at the given points, from a screenshot.
READ_PIXELS = """
const [png, points, done] = arguments;
const image = new Image();
image.onload = () => {
  const canvas = document.createElement("canvas"), scale = image.width / window.innerWidth;
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.drawImage(image, 0, 0);
  done(points.map(([x, y]) => "#" + Array.from(context.getImageData(x * scale, y * scale, 1, 1).data.slice(0, 3),
    byte => byte.toString(16).padStart(2, "0")).join("")));
};
image.src = "data:image/png;base64," + png;
"""


class Page:
    """The page under test, and the reader's hands and eyes."""

    def __init__(self, path, expected, pixel_ratio=1):
        self.expected = expected
        self.url = pathlib.Path(path).resolve().as_uri()
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        arguments = ["--headless=new", "--window-size=1400,1400", f"--force-device-scale-factor={pixel_ratio}",
                     "--force-color-profile=srgb", "--disable-dev-shm-usage", "--hide-scrollbars"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        for argument in arguments:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.driver.set_page_load_timeout(DEADLINE_SECONDS)
        self.driver.set_script_timeout(DEADLINE_SECONDS)
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument",
                                    {"source": RECORD_RECTANGLES})

    def open(self):
        self.prefer("light")
        self.driver.get(self.url)
        self.settle()

    def run(self, script, *args):
        return self.driver.execute_script(script, *args)

    def until(self, condition, what):
        WebDriverWait(self.driver, DEADLINE_SECONDS, 0.02).until(lambda _: condition(), what)

    def settle(self):
        """Until all asked frames are drawn."""
        self.until(lambda: self.run("return pipewright.frames > 0 && pipewright.settled"),
                   "the page did not draw")

    def prefer(self, scheme):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def box(self, index):
        return self.run("return pipewright.boxAt(arguments[0])", index)

    def view(self):
        self.settle()
        return self.run("return pipewright.view")

    def boxes_filled(self):
        """Rectangles of the newest frame in the colour of some kind, as (colour, alpha)."""
        colours = {box["colour"] for box in self.expected["boxes"]}
        filled = self.run("return Array.from(document.querySelectorAll('canvas.plot'),"
                          " canvas => canvas.rectangles).flat()")
        return [(colour, alpha) for colour, alpha in filled if colour in colours]

    def pixels(self, points):
        png = self.driver.get_screenshot_as_base64()
        return self.driver.execute_async_script(READ_PIXELS, png, points)

    def pointer(self, x, y):
        actions = ActionChains(self.driver, duration=0)
        actions.w3c_actions.pointer_action.move_to_location(round(x), round(y))
        return actions

    def hover(self, box):
        self.pointer(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2).perform()

    def tip(self):
        """The tooltip as {"what": heading, name: value, ...}; None while it is hidden."""
        return self.run("""
            const tip = document.getElementById("tip");
            if (!tip.offsetParent && getComputedStyle(tip).display === "none") return null;
            const text = selector => Array.from(tip.querySelectorAll(selector), each => each.textContent);
            const values = text("dd");
            return Object.fromEntries([["what", text(".what")[0]],
                                       ...text("dt").map((name, i) => [name, values[i]])]);""")

    def background(self):
        return self.run("return getComputedStyle(document.body).backgroundColor")

    def press(self, key):
        ActionChains(self.driver).send_keys(key).perform()

    def shoot(self, name):
        if options.shots:
            self.driver.save_screenshot(str(pathlib.Path(options.shots) / f"{name}.png"))


class TimelinePage(unittest.TestCase):
    def setUp(self):
        page.open()

    def tearDown(self):
        self.assertEqual(page.driver.get_log("browser"), [], "the browser logged something")

    def wheel(self, x, y, amount):
        before = page.view()
        origin = ScrollOrigin.from_viewport(round(x), round(y))
        ActionChains(page.driver).scroll_from_origin(origin, 0, amount).perform()
        page.until(lambda: page.view() != before, "the wheel did not change the view")

    def test_draws_a_box_for_every_span_in_its_colour(self):
        boxes = page.expected["boxes"]
        filled = page.boxes_filled()
        self.assertEqual(len(filled), len(boxes))
        self.assertEqual(collections.Counter(colour for colour, _ in filled),
                         collections.Counter(box["colour"] for box in boxes))
        self.assertTrue(all(alpha == 1 for _, alpha in filled))
        self.assertEqual(page.run("return pipewright.boxesDrawn"), len(boxes))
        page.shoot("light")

    def test_boxes_are_on_the_screen_where_they_belong(self):
        boxes = page.run("return Array.from({length: pipewright.numBoxes}, (_, i) => pipewright.boxAt(i))")
        for box, expected in zip(boxes, page.expected["boxes"], strict=True):
            for key in ("timeline", "rank", "label", "kind", "colour"):
                self.assertEqual(box[key], expected[key])
        # Below the label, so that its letters are not met.
        points = [(box["x"] + box["width"] / 2, box["y"] + box["height"] - 3) for box in boxes]
        self.assertEqual(page.pixels(points), [box["colour"] for box in boxes])

    def test_hover_says_what_and_how_long(self):
        for index, expected in list(enumerate(page.expected["boxes"]))[::7]:
            page.hover(page.box(index))
            page.until(lambda: (page.tip() or {}).get("what") == expected["label"] + expected["kind"],
                       f"no tooltip for {expected}")
            tip = page.tip()
            self.assertEqual(tip["rank"], str(expected["rank"]))
            self.assertEqual(tip["stage"], str(expected["stage"]))
            self.assertEqual(tip["start"], expected["start"])
            self.assertEqual(tip["duration"], expected["duration"])
            self.assertEqual(tip["idle before"], expected["idle_before"])
            self.assertEqual(tip.get("of it on the link"), expected["link_wait"])
            if expected["micro_batch"] >= 0:
                self.assertEqual(tip["micro-batch"], str(expected["micro_batch"]))
        page.shoot("hover")
        page.pointer(5, 5).perform()
        page.until(lambda: page.tip() is None, "the tooltip stayed")

    def test_versions_of_the_weights_are_in_shade_label_and_hover(self):
        boxes = [(index, box) for index, box in enumerate(page.expected["boxes"]) if box["version"]]
        self.assertGreater(len(boxes), 10)
        self.assertGreater(len({box["colour"] for _, box in boxes if box["kind"] == "forward"}), 2)
        for index, expected in boxes[::3]:
            self.assertTrue(expected["label"].endswith("@" + expected["version"]))
            page.hover(page.box(index))
            page.until(lambda: (page.tip() or {}).get("what") == expected["label"] + expected["kind"],
                       f"no tooltip for {expected}")
            makes = expected["micro_batch"] < 0
            self.assertEqual(page.tip()["makes version" if makes else "version of the weights"],
                             expected["version"])
        page.shoot("versions")
        legend = page.run("return document.getElementById('legend').textContent")
        self.assertIn("versions of the weights take turns:@0@1@2@3", legend)
        heads = page.run("return Array.from(document.querySelectorAll('section'), each => each.textContent)")
        self.assertIn("whole time", heads[-1])
        self.assertNotIn("step time", heads[-1])
        self.assertNotIn("whole time", heads[0])

    def test_hover_over_memory_and_idle_time(self):
        box = page.box(0)
        page.pointer(box["x"] + box["width"] * 1.5, box["y"] + box["height"] + 10).perform()
        page.until(lambda: (page.tip() or {}).get("what") == "memory", "no tooltip for the memory")
        self.assertEqual(page.tip()["holds"], "1 MiB")
        self.assertEqual(page.tip()["peak"], "8 MiB")
        later = page.box(page.expected["boxes"].index(
            next(each for each in page.expected["boxes"] if each["idle_before"] not in ("0", "0 s"))))
        page.pointer(later["x"] - 4, later["y"] + 5).perform()
        page.until(lambda: (page.tip() or {}).get("what") == "idle", "no tooltip for idle time")

    def test_memory_curve_is_high_where_much_is_held(self):
        box = page.box(0)  # a unit of time wide; its rank holds nothing before 1, and the most at 12
        y = box["y"] + box["height"] + 13
        empty, held, card = page.pixels([(box["x"] + time * box["width"], y) for time in (0.5, 12.5)] +
                                        [(box["x"] - 2, y)])
        self.assertEqual(empty, card)
        self.assertNotEqual(held, card)

    def test_wheel_zooms_at_the_pointer_and_drag_pans(self):
        box = page.box(9)
        x, y = round(box["x"]), box["y"] + box["height"] / 2
        whole = page.view()
        self.wheel(x, y, -400)
        zoomed = page.view()
        self.assertLess(zoomed["to"] - zoomed["from"], 0.7 * (whole["to"] - whole["from"]))
        self.assertAlmostEqual(page.box(9)["x"], box["x"], delta=1.5)
        self.assertGreater(page.box(9)["width"], 1.4 * box["width"])
        self.assertLess(len(page.boxes_filled()), len(page.expected["boxes"]))
        page.shoot("zoomed")

        actions = page.pointer(x, y)
        actions.click_and_hold().move_by_offset(-120, 0).release().perform()
        page.until(lambda: page.view()["from"] > zoomed["from"], "dragging did not pan")
        self.assertAlmostEqual(page.box(9)["x"], box["x"] - 120, delta=1.5)
        self.assertAlmostEqual(page.view()["to"] - page.view()["from"], zoomed["to"] - zoomed["from"])

        page.pointer(x, y).double_click().perform()
        page.until(lambda: page.view() == whole, "a double click did not show the whole step")
        self.assertEqual(len(page.boxes_filled()), len(page.expected["boxes"]))

    def test_keys_zoom_pan_and_reset(self):
        whole = page.view()
        page.press("+")
        page.until(lambda: page.view()["to"] < whole["to"], "+ did not zoom in")
        zoomed = page.view()
        page.press(Keys.ARROW_RIGHT)
        page.until(lambda: page.view()["from"] > zoomed["from"], "the right arrow did not pan")
        page.press(Keys.ARROW_LEFT)
        page.until(lambda: abs(page.view()["from"] - zoomed["from"]) < 1e-9, "the left arrow did not")
        page.press("-")
        page.until(lambda: page.view()["to"] > zoomed["to"], "- did not zoom out")
        page.press("+")
        page.press("0")
        page.until(lambda: page.view() == whole, "0 did not show the whole step")

    def test_dark_by_button_and_by_preference(self):
        button = page.driver.find_element(By.ID, "theme")
        light, corner = page.background(), [(3, 3)]
        light_pixel = page.pixels(corner)
        button.click()
        page.until(lambda: page.background() != light, "the button did not change the theme")
        page.settle()
        dark = page.background()
        page.shoot("dark")
        self.assertNotEqual(page.pixels(corner), light_pixel)
        self.assertLess(sum(int(part) for part in dark[4:-1].split(",")), 3 * 64)
        self.assertEqual(len(page.boxes_filled()), len(page.expected["boxes"]))
        button.click()
        page.until(lambda: page.background() == light, "the button did not change back")
        page.prefer("dark")
        page.until(lambda: page.background() == dark, "the page does not follow the preference")

    def test_timelines_are_stacked_on_one_axis(self):
        names = page.run("return Array.from(document.querySelectorAll('h2'), each => each.textContent)")
        self.assertEqual(names, page.expected["names"])
        self.assertEqual(page.driver.title, page.expected["title"])
        starts = collections.defaultdict(list)  # the left edges of what starts at one time
        tops = collections.defaultdict(list)
        for index, expected in enumerate(page.expected["boxes"]):
            box = page.box(index)
            starts[expected["start"]].append(box["x"])
            tops[expected["timeline"]].append(box["y"])
        self.assertGreaterEqual(len(tops), 3)
        for edges in starts.values():
            self.assertLess(max(edges) - min(edges), 0.01)
        for above, below in zip(sorted(tops), sorted(tops)[1:]):
            self.assertLess(max(tops[above]), min(tops[below]))

    def test_legend_and_click_mark_what_to_follow(self):
        expected = page.expected["boxes"]
        button = page.driver.find_element(By.XPATH, "//button[.='Fforward']")
        button.click()
        page.settle()
        full = sum(alpha == 1 for _, alpha in page.boxes_filled())
        self.assertEqual(full, sum(box["kind"] == "forward" for box in expected))
        button.click()
        box = page.box(2)
        page.hover(box)
        page.pointer(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2).click().perform()
        page.settle()
        full = sum(alpha == 1 for _, alpha in page.boxes_filled())
        self.assertEqual(full, sum(each["micro_batch"] == 2 for each in expected))
        page.shoot("followed")
        page.press(Keys.ESCAPE)
        page.settle()
        self.assertTrue(all(alpha == 1 for _, alpha in page.boxes_filled()))

    def test_draws_sharply_on_dense_screens(self):
        dense = Page(options.page, page.expected, pixel_ratio=2)
        try:
            dense.open()
            self.assertEqual(*dense.run("""
                const canvas = document.querySelector("canvas.plot");
                return [canvas.width, 2 * canvas.clientWidth]"""))
            self.assertEqual(len(dense.boxes_filled()), len(page.expected["boxes"]))
            box = dense.box(0)
            point = (box["x"] + box["width"] / 2, box["y"] + box["height"] - 3)
            self.assertEqual(dense.pixels([point]), [box["colour"]])
            self.assertEqual(dense.driver.get_log("browser"), [])
        finally:
            dense.driver.quit()

    def test_loads_nothing(self):
        self.assertEqual(page.run("return performance.getEntriesByType('resource').map(e => e.name)"), [])


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make-page", help="the program trace_make_page")
    parser.add_argument("--page", help="a page it wrote before")
    parser.add_argument("--expect", help="and what is in it")
    parser.add_argument("--shots", help="a folder for screenshots")
    parsed = parser.parse_args()
    if not parsed.make_page and not (parsed.page and parsed.expect):
        parser.error("give --make-page, or --page and --expect")
    return parsed


if __name__ == "__main__":
    options = parse_options()
    for program, package in ((CHROMIUM, "chromium"), (DRIVER, "chromium-driver")):
        if not os.access(program, os.X_OK):
            sys.exit(f"browser_test: {program} is missing; install Debian's {package}")
    with tempfile.TemporaryDirectory() as folder:
        if options.make_page:
            subprocess.run([options.make_page, folder], check=True)
            options.page, options.expect = f"{folder}/timeline.html", f"{folder}/timeline.json"
        page = Page(options.page, json.loads(pathlib.Path(options.expect).read_text()))
        try:
            result = unittest.main(argv=[sys.argv[0]], exit=False, verbosity=2).result
        finally:
            page.driver.quit()
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
