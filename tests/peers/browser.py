"""Looks at the live page in a real browser: its numbers move while events
flow, and nothing is fetched from elsewhere.

The address of the page is the first argument. With a second one, a folder,
pictures of the page are left there, light and dark.
"""

import json
import sys
import tempfile
import time

from selenium import webdriver
from selenium.webdriver.common.by import By

FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run
--disable-background-networking --disable-component-update --disable-sync
--disable-dev-shm-usage --window-size=1300,900""".split()
PATIENCE = 30


def browser(profile):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in FLAGS + [f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    # Everything that the page's network does.
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    service = webdriver.ChromeService(executable_path="/usr/bin/chromedriver")
    return webdriver.Chrome(options=options, service=service)


def look(driver, page, pictures):
    driver.get(page)
    text = lambda name: driver.find_element(By.ID, name).text

    def number(name):
        digits = "".join(c for c in text(name).split(" ")[0] if c in "0123456789.")
        return float(digits) if digits else None

    def until(what, is_so):
        end = time.time() + PATIENCE
        while not is_so():
            if time.time() > end:
                raise SystemExit(f"never {what}: {driver.find_element(By.TAG_NAME, 'main').text}")
            time.sleep(0.1)
        print("seen:", what)

    until("both ranks", lambda: text("ranks") == "2" and "live" in text("states"))
    rows = driver.find_elements(By.CSS_SELECTOR, "#rows tr")
    assert [row.find_elements(By.TAG_NAME, "td")[0].text for row in rows] == ["1.0", "1.1"]
    until("events flow", lambda: (number("stored") or 0) > 0 and (number("batches") or 0) > 0)
    blocks, gaps = number("device"), number("gaps")
    until("blocks move", lambda: number("device") != blocks)
    until("gaps are counted", lambda: number("gaps") > gaps)
    until("queries are timed", lambda: any(unit in text("p99") for unit in ("µs", "ms")))
    row = lambda: [cell.text for cell in driver.find_elements(By.CSS_SELECTOR, "#rows tr:first-child td")]
    then = row()
    until("a row moves", lambda: row()[9] != then[9])
    until("the line is drawn", lambda: "L" in driver.find_element(By.CSS_SELECTOR, "path.line").get_attribute("d"))
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        ink, paper = driver.execute_script(
            "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
        )
        light = lambda color: sum(int(part) for part in color[4:-1].split(",")[:3]) / 3
        assert abs(light(ink) - light(paper)) > 150, (scheme, ink, paper)
        assert (light(paper) > 128) == (scheme == "light"), (scheme, paper)
        if pictures:
            driver.save_screenshot(f"{pictures}/{scheme}.png")

    urls = set()
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            urls.add(message["params"]["request"]["url"])
    foreign = [url for url in urls if not url.startswith((page, "data:", "chrome:", "about:"))]
    assert page + "workers" in urls and not foreign, urls
    complaints = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not complaints, complaints
    print("fetched:", sorted(urls))


def main():
    page, pictures = sys.argv[1], (sys.argv[2:] or [None])[0]
    with tempfile.TemporaryDirectory() as profile:
        driver = browser(profile)
        try:
            look(driver, page, pictures)
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
