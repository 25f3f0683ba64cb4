"""What tests in a real browser share."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
TROUBLE = ("error", "warning")


def opener(browser, opened, complaints):
    """A function that opens an address; what the page complains about is written down."""

    def go(address, size=LAPTOP, scheme="light", offline=True):
        context = browser.new_context(viewport=size, color_scheme=scheme, offline=offline)
        context.set_default_timeout(300_000)  # the machine may be busy
        opened.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type in TROUBLE else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#panel > *")
        return page

    return go


def faults(page):
    """Serious faults of accessibility, by axe-core."""
    axe = (ROOT / "web" / "built" / "axe.min.js").read_text()
    page.evaluate(f"() => {{ {axe} }}")  # a script element would be against the page's own policy
    found = page.evaluate("() => axe.run().then((result) => result.violations)")
    serious = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    return [(fault["id"], [node["html"][:120] for node in fault["nodes"][:3]]) for fault in serious]
