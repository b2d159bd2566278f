"""Uses a dashboard like a person, in a headless Chromium.

dashboard_page.py live URL       of a fleet that learns CartPole, run "run", next to run "past"
dashboard_page.py token URL TOKEN
dashboard_page.py thousand URL   run "run" with 1,000 actors; prints what an update takes
Pictures go to $TROOP_SHOTS, where that is set. Exit code 77: no browser was found.
"""

import os
import sys
import time

import browser

SHOWN = "document.body?.dataset.shown === '%s'"


def check(is_so, what):
    if not is_so:
        raise AssertionError(what)


def text(page, selector):
    return page.eval(f"((e) => e?.innerText ?? e?.textContent ?? '')"
                     f"(document.querySelector({selector!r}))")


def view(page, url, run, name):
    page.open(f"{url}#run={run}&view={name}")
    page.wait(SHOWN % f"{run} {name}")


def shot(page, name):
    folder = os.environ.get("TROOP_SHOTS")
    if folder:
        time.sleep(0.3)  # fonts
        page.screenshot(f"{folder}/{name}.png")


# The number of a canvas's pixels that have about the color of a CSS variable.
PIXELS = """((selector, variable) => {
  const canvas = document.querySelector(selector);
  const style = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  const want = [1, 3, 5].map((i) => parseInt(style.slice(i, i + 2), 16));
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200 && want.every((w, k) => Math.abs(w - data[i + k]) < 40)) ++found;
  }
  return found;
})"""

# WCAG 2.1: the least contrast of text on what is behind it, for each of these pairs.
CONTRAST = """((pairs) => {
  const style = getComputedStyle(document.documentElement);
  const light = (name) => {
    let hex = style.getPropertyValue(name).trim().slice(1);
    if (hex.length === 3) hex = [...hex].map((c) => c + c).join('');
    const [r, g, b] = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
      .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return Math.min(...pairs.map(([a, b]) => {
    const [x, y] = [light(a), light(b)].sort((m, n) => n - m);
    return (x + 0.05) / (y + 0.05);
  }));
})"""
PAIRS = [["--text", "--card"], ["--text", "--bg"], ["--muted", "--card"], ["--muted", "--bg"],
         ["--muted", "--soft"], ["--accent", "--card"], ["--hot", "--card"],
         ["--hot", "--hot-soft"], ["--bad", "--card"], ["--good", "--soft"]]

NAMELESS = """[...document.querySelectorAll('button,input,select,canvas,img')].filter((e) =>
  !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length ||
    e.hasAttribute('alt'))).map((e) => e.outerHTML)"""


def look_at_overview(page, url):
    view(page, url, "run", "overview")
    page.wait("document.querySelector('[data-card=return] canvas')?.dataset.points >= 3",
              "a curve of returns")
    check(page.eval(PIXELS + "('[data-card=return] canvas', '--c2')") > 30, "no curve is drawn")
    page.wait("document.querySelector('[data-card=loss] canvas')?.dataset.points >= 3",
              "a curve of losses")
    for edge in ("experience", "batches", "updates", "weights"):
        page.wait(f"parseFloat(document.querySelector('[data-edge={edge}] .rate').textContent) > 0",
                  f"a rate at {edge}")
    hot = page.wait("document.querySelector('.node.hot')?.dataset.node", "a bottleneck")
    check(hot in ("actor", "replay", "learner"), hot)
    check("bottleneck" in text(page, ".node.hot").lower(), "it is not marked in words")
    check("Bottleneck: " in text(page, "#bottleneck"), "no reason for the bottleneck")
    page.wait("/Actors 2 of 2/.test(document.querySelector('[data-node=actor]').textContent)",
              "both actors")
    check("/s" in text(page, "[data-key=steps_s]"), "no steps per second")
    check(text(page, "#state") == "running", text(page, "#state"))
    for width, name in ((1280, "overview"), (420, "overview-narrow")):
        page.size(width, 1000)
        page.wait("document.documentElement.scrollWidth <= innerWidth", f"room at {width} px")
        shot(page, name)
    page.size(1280, 1000)
    page.scheme("dark")
    page.wait(PIXELS + "('[data-card=return] canvas', '--c2') > 30", "a curve in the dark")
    check(page.eval(f"{CONTRAST}({PAIRS})") >= 4.5, "contrast in the dark")
    shot(page, "overview-dark")
    page.scheme("light")
    page.wait(PIXELS + "('[data-card=return] canvas', '--c2') > 30", "a curve in the light")
    check(page.eval(f"{CONTRAST}({PAIRS})") >= 4.5, "contrast in the light")


def look_at_fleet(page, url):
    view(page, url, "run", "fleet")
    page.wait("document.querySelectorAll('#members tbody tr').length === 6", "six members")
    members = text(page, "#members")
    for name in ("actor-0", "actor-1", "replay-0", "learner-0", "paramserver-0", "evaluator-0"):
        check(name in members, name)
    check(page.eval("document.querySelectorAll('#roles tbody tr').length") == 5, "five roles")
    page.wait("document.querySelectorAll('#histograms canvas').length >= 2", "histograms")
    check("Replay age" in text(page, "#histograms"), "no replay ages")
    page.wait("document.querySelector('#histograms canvas').dataset.points >= 3", "its bars")
    check("Replay fill level" in text(page, "#queues"), "no queues")
    shot(page, "fleet")
    page.eval("document.querySelector('#member-text').value = 'learner';"
              "document.querySelector('#member-text').dispatchEvent(new Event('input'))")
    page.wait("document.querySelectorAll('#members tbody tr').length === 1", "one that is found")


def look_at_logs(page, url):
    page.eval("document.querySelector('#members [data-log]').click()")  # on to its log
    page.wait("document.querySelector('#log').textContent.includes('joined as learner-0')",
              "the learner's log")
    view(page, url, "run", "logs")
    page.eval("document.querySelector('#log-name').value = 'actor-1.log';"
              "document.querySelector('#log-name').dispatchEvent(new Event('input'))")
    page.wait("document.querySelector('#log').textContent.includes('joined as actor-1')",
              "an actor's log")
    shot(page, "logs")


def look_at_episode(page, url):
    view(page, url, "run", "episode")
    page.eval("document.querySelector('#record').click()")
    page.wait("document.querySelector('#episode').naturalWidth >= 60", "an episode's picture")
    check("return" in text(page, "#episode-text"), text(page, "#episode-text"))
    check(not page.eval("document.querySelector('#episode').hidden"), "it is hidden")
    shot(page, "episode")


# Elements that are cut off at the right edge and unreachable: outside of any scrolling box.
CUT_OFF = """(() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (e) => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
  return [...document.querySelectorAll('body *')].filter((e) => {
    const box = e.getBoundingClientRect();
    if (box.width === 0 || box.right <= width + 1 || e.closest('.sr')) return false;
    for (let p = e.parentElement; p; p = p.parentElement) if (scrolls(p)) return false;
    return true;
  }).map((e) => e.outerHTML.slice(0, 80));
})()"""


def look_on_a_phone(page, url):
    page.size(390, 844)
    for name in ("overview", "fleet", "logs", "episode", "runs", "config"):
        view(page, url, "run", name)
        page.wait("document.documentElement.scrollWidth <= innerWidth", f"room for {name}")
        check(page.eval(CUT_OFF) == [], f"{name}: {page.eval(CUT_OFF)}")
        check(page.eval("((e) => e.scrollWidth <= e.clientWidth)(document.querySelector('nav'))"),
              "a tab is out of sight")
        check(page.eval("[...document.querySelectorAll('table')].every((e) => "
                        "getComputedStyle(e.parentElement).overflowX === 'auto')"),
              "a table does not scroll in its own box")
        shot(page, "phone-" + name)
    page.size(1280, 1000)


def look_at_runs(page, url):
    view(page, url, "run", "runs")
    rows = page.wait("document.querySelectorAll('#runs tbody tr').length === 2"
                     " && document.querySelector('#runs').innerText", "both runs")
    check("past" in rows and "ended" in rows and "running" in rows, rows)
    # Steps, time and score of the live run.
    page.wait("/[0-9] k of 1.00 G\\t[^\\t–]+\\t[0-9.]+ so far/"
              ".test(document.querySelector('#runs').innerText)", rows)
    page.wait("document.querySelector('#compare').dataset.points >= 2", "curves of both")
    check(page.eval(PIXELS + "('#compare', '--c1')") > 20, "the first curve is not drawn")
    check(page.eval(PIXELS + "('#compare', '--c2')") > 20, "the second curve is not drawn")
    shot(page, "runs")


def look_live(page, url):
    look_at_overview(page, url)
    look_at_fleet(page, url)
    look_at_logs(page, url)
    look_at_episode(page, url)
    look_at_runs(page, url)
    look_on_a_phone(page, url)
    view(page, url, "run", "config")
    check("CartPole-v1" in text(page, "#config"), "no config")
    page.eval("document.querySelector('#tab-config').focus()")
    page.key("ArrowRight")
    page.wait(SHOWN % "run overview", "the next view by the keyboard")
    check(page.eval("document.activeElement.id") == "tab-overview", "the focus is elsewhere")
    check(page.eval(NAMELESS) == [], f"without a name: {page.eval(NAMELESS)}")
    view(page, url, "past", "overview")
    check(text(page, "#state") == "ended", text(page, "#state"))


def look_with_token(page, url, token):
    page.open(url)
    page.wait("!document.querySelector('#token-form').hidden", "the question for the token")
    check("token" in text(page, "#error"), text(page, "#error"))
    check(text(page, "#tiles") == "", "something is shown")
    for given in ("wrong-" + token, token):
        page.eval(f"document.querySelector('#token').value = {given!r};"
                  "document.querySelector('#token-form').requestSubmit()")
        if given != token:
            page.wait("document.querySelector('#error').innerText.startsWith('this is not the')",
                      "a line for a wrong one")
    page.wait(SHOWN % "run overview", "the run")
    page.errors.clear()  # the browser's lines on both 401
    page.open(f"{url}#token={token}")
    page.wait(SHOWN % "run overview", "the run, by the address alone")
    check(token not in page.eval("location.href"), "the token stays in the address")


def look_at_a_thousand(page, url):
    view(page, url, "run", "fleet")
    page.wait("document.querySelector('#member-count').innerText === '1–50 of 1001'", "the pages")
    page.wait("/1000/.test(document.querySelector('#roles').innerText)", "a thousand actors")
    times = []
    for _ in range(5):
        page.eval("document.querySelector('#member-next').click()")
        page.wait("document.querySelector('#members tbody').rows.length === 50", "the next page")
        time.sleep(0.2)
        times.append(float(page.eval("document.body?.dataset.updateMs")))
    sizes = page.eval("performance.getEntriesByType('resource').filter((e) => "
                      "e.name.includes('/api/')).slice(-8).map((e) => e.encodedBodySize)")
    print(f"script {max(times)} ms an update at most; answers of {sizes} bytes")
    check(page.eval("document.querySelector('#member-count').innerText") != "1–50 of 1001",
          "the page was not turned")
    check(max(sizes) < 300000, f"an answer is large: {sizes}")
    shot(page, "thousand")
    view(page, url, "run", "overview")
    page.wait("/Actors 1000 of/.test(document.querySelector('[data-node=actor]').textContent)",
              "a thousand in the picture")


def look_at_who_is_asked(page, url):
    view(page, url, "run", "overview")
    page.wait("/Inference 1 of 1/.test(document.querySelector('[data-node=inference]')"
              "?.textContent)", "the inference server")
    for edge in ("actions", "experience", "weights"):
        page.wait(f"parseFloat(document.querySelector('[data-edge={edge}] .rate').textContent) > 0",
                  f"a rate at {edge}")
    page.wait("/per batch/.test(document.querySelector('[data-node=inference]').textContent)",
              "actions per batch")
    overlaps = page.eval("""(() => {
      const boxes = [...document.querySelectorAll('.node rect')].map((e) =>
        e.getBoundingClientRect());
      return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right &&
        b.left < a.right && a.top < b.bottom && b.top < a.bottom));
    })()""")
    check(not overlaps, "nodes lie over each other")
    check(page.eval("document.querySelector('#picture svg').getBoundingClientRect().bottom") >=
          page.eval("document.querySelector('[data-node=evaluator] rect')"
                    ".getBoundingClientRect().bottom"), "the picture is cut off")
    shot(page, "asked")


def main():
    kind, url = sys.argv[1:3]
    program = browser.find()
    if program is None:
        print("no Chromium here (Debian: chromium)")
        return 77
    with browser.Browser(program, 1280, 1000) as page:
        look = {"live": look_live, "token": look_with_token, "thousand": look_at_a_thousand,
                "asked": look_at_who_is_asked}[kind]
        look(page, url, *sys.argv[3:])
        check(page.errors == [], f"the page complains: {page.errors}")
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
