"""What a reader does with the page, in a real browser: nothing is fetched, nothing complains, everything can be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from selenium.webdriver.common.keys import Keys

import html_audits
import sample_audits
from headless import Page
from stepscope.audit.result import Audit

Open = Callable[[Audit], Page]

_SPAN = "const s = document.querySelectorAll('#stage .time'); return [...s].slice(0, -1).map(t => Number(t.textContent))"


@pytest.fixture
def page(opened: Open) -> Iterator[Page]:
    """The page of an audit that has something in every section; it must stay silent whatever a test does."""
    shown = opened(html_audits.full())
    yield shown
    assert shown.complaints() == []
    assert shown.requests() == []


def in_view(page: Page) -> tuple[float, float]:
    """First and last time that the axis names."""
    times = page.run(_SPAN)
    return times[0], times[-1]


def sections(page: Page) -> list[str]:
    found: list[str] = page.run("return [...document.querySelectorAll('section')].map(s => s.id)")
    return found


def colour(page: Page, selector: str, name: str) -> str:
    return str(page.run("return getComputedStyle(arguments[0])[arguments[1]]", page.one(selector), name))


def test_the_first_screen_answers_bound_why_what_to_do_how_much_and_how_sure(page: Page) -> None:
    assert page.text("h1") == "comm-bound"
    assert page.text(".reason") == "serialised"
    assert page.text(".figure.main .value") == "15.0 % of the step"
    assert "median; 95 % interval 14.8 % to 15.3 %" in page.text(".figure.main")
    why, do, sure = (" ".join(part.text.split()) for part in page.all(".answers > div"))
    assert why == "Why The exposed time is an upper bound of the cost. Found: bucket too large, straggler."
    assert "stepscope run --nproc-per-node 2 gpt --bucket-cap-mb 8" in do
    assert "The first finding costs 40.00 ms a step (95 % interval 38.50 to 41.25 ms), 10.0 % of it." in do
    assert "Taken one by one, the ranks have medians of 14.9 % to 15.2 %." in sure
    bottom = page.run("return document.querySelector('.answers').getBoundingClientRect().bottom")
    assert bottom < 800


def test_sections_come_in_the_order_of_the_questions_and_the_menu_leads_to_each(page: Page) -> None:
    order = [
        "verdict",
        "findings",
        "timeline",
        "exposed",
        "buckets",
        "steps",
        "ranks",
        "bandwidth",
        "measured",
    ]
    assert sections(page) == order
    assert page.run("return [...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))") == order[1:]


def test_pointing_at_a_bucket_tells_its_figures(page: Page) -> None:
    page.run("document.getElementById('stage').scrollIntoView({block: 'center', behavior: 'instant'})")
    box = page.run(
        "const s = document.getElementById('stage').getBoundingClientRect();"
        "const b = document.querySelector('#stage path.exposed').getBoundingClientRect();"
        "return [b.right - 3 - s.left, b.top + 5 - s.top]"
    )
    page.hover(page.one("#stage"), *box)
    assert page.text("#facts b") == "bucket 1, 20.0 MiB"
    assert "exposed 60.00 ms" in page.text("#facts dl").replace("exposed60", "exposed 60")
    assert len(page.all("#stage .chosen")) == 1


def test_the_keyboard_alone_reaches_and_works_the_timeline(page: Page) -> None:
    for _ in range(60):
        page.keys(Keys.TAB)
        if page.run("return document.activeElement.id") == "stage":
            break
    assert page.run("return document.activeElement.id") == "stage"
    page.keys(Keys.ARROW_RIGHT)
    assert page.text("#facts b") == "broadcast, buffer"
    page.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.text("#facts b") == "bucket 1, 20.0 MiB"
    page.keys(Keys.ARROW_DOWN)
    assert "rank 1" in page.text("#facts p")
    page.keys(Keys.ENTER)
    first, last = in_view(page)
    assert last - first < 400
    page.keys("0")
    first, last = in_view(page)
    assert last - first >= 390
    page.keys(Keys.ESCAPE)
    assert page.all("#stage .chosen") == []


def test_buttons_and_wheel_zoom_and_move(page: Page) -> None:
    whole = in_view(page)
    page.click("[data-do=in]")
    nearer = in_view(page)
    assert nearer[1] - nearer[0] < 0.6 * (whole[1] - whole[0])
    page.click("[data-do=right]")
    assert in_view(page)[0] > nearer[0]
    page.click("[data-do=fit]")
    assert in_view(page) == whole
    page.run("document.getElementById('stage').scrollIntoView({block: 'center', behavior: 'instant'})")
    before = page.run("return scrollY")
    page.run("document.getElementById('stage').focus({preventScroll: true})")
    page.wheel(page.one("#stage"), 400, 60, -200)
    assert in_view(page)[1] - in_view(page)[0] < whole[1] - whole[0]
    assert page.run("return scrollY") == before


def test_the_wheel_scrolls_the_page_until_the_timeline_is_chosen(page: Page) -> None:
    whole = in_view(page)
    page.run("document.getElementById('stage').scrollIntoView({block: 'center', behavior: 'instant'})")
    page.wheel(page.one("#stage"), 400, 60, 200)
    assert in_view(page) == whole


def test_a_finding_leads_to_where_it_shows(page: Page) -> None:
    page.click("#finding-0 .jump")
    assert page.text("#facts b") == "bucket 1, 20.0 MiB"
    assert page.run("return document.activeElement.id") == "stage"
    page.click("#finding-1 .jump")
    assert page.text("#step option:checked") == "6"
    assert "waited for a late rank3.25 ms" in page.text("#facts dl")
    assert "rank 0, step 6" in page.text("#facts p")


def test_steps_and_ranks_are_chosen_and_a_step_that_does_not_count_says_so(page: Page) -> None:
    assert [" ".join(o.text.split()) for o in page.all("#step option")] == [
        "4 (not counted: bucket rebuild)",
        "5",
        "6",
        "7",
    ]
    page.click("#chooser summary")
    page.click("#boxes label:first-child input")
    assert [label.text for label in page.all("#stage .rank")] == ["rank 1"]
    assert page.text("#chosen") == "1"


def test_ranks_stand_on_one_clock(page: Page) -> None:
    starts = page.run("return [...document.querySelectorAll('#stage path.forward')].map(p => p.getBBox().x)")
    per_ms = page.run(
        "const t = [...document.querySelectorAll('#stage .time')].slice(0, 2);"
        "return (t[1].getAttribute('x') - t[0].getAttribute('x')) / (t[1].textContent - t[0].textContent)"
    )
    assert starts[1] - starts[0] == pytest.approx(2.0 * per_ms, abs=0.2)


def test_words_are_explained_where_they_stand(page: Page) -> None:
    page.click("#exposed .meaning summary")
    assert page.one("#exposed .meaning dl").is_displayed()
    assert page.text("#exposed .meaning dt:first-child") == "communication"


def test_what_was_measured_how_and_what_was_left_out_is_said(page: Page) -> None:
    said = page.text("#measured")
    assert "2 of 2 ranks, gloo on cpu." in said
    assert "Thresholds: cost 10.0 % of the step, communication 10.0 % of the step less its cost" in said
    assert "ranks 0, 1, step 4: bucket rebuild" in said
    assert "ranks-missing 2 of 4 ranks are here rank0.json" in said
    assert "stepscope 0.1.0, stepscope.audit/1" in said


def test_dark_follows_the_system_and_the_button_overrules_it(page: Page) -> None:
    assert colour(page, "body", "backgroundColor") == "rgb(255, 255, 255)"
    page.prefer("dark")
    assert colour(page, "body", "backgroundColor") == "rgb(18, 22, 29)"
    assert colour(page, ".picture text", "fill") == "rgb(154, 165, 180)"
    page.click("#theme")
    assert colour(page, "body", "backgroundColor") == "rgb(255, 255, 255)"
    page.click("#theme")
    assert colour(page, "body", "backgroundColor") == "rgb(18, 22, 29)"


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_width_needs_sideways_scrolling(opened: Open, width: int) -> None:
    page = opened(html_audits.full())
    page.screen(width, 740)
    page.frames()
    assert page.run("return document.documentElement.scrollWidth") <= width
    wide = page.run("return getComputedStyle(document.querySelector('#buckets .wide')).display")
    assert (wide == "none") == (width == 360)


def test_on_paper_everything_is_open_and_the_timeline_shows_the_whole_step(page: Page) -> None:
    page.click("[data-do=in]")
    page.run(
        "addEventListener('beforeprint', () => { window.printed = {"
        " open: [...document.querySelectorAll('details:not(#chooser)')].every(d => d.open),"
        " width: document.querySelector('#stage svg').getAttribute('width') } })"
    )
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF")
    assert page.run("return window.printed") == {"open": True, "width": "700"}
    assert page.run("return document.querySelectorAll('details[open]').length") == 0


def test_a_page_asks_the_network_for_nothing_and_its_policy_would_refuse(page: Page) -> None:
    policy = page.run("return document.querySelector('meta[http-equiv]').content")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert page.run("return performance.getEntriesByType('resource').map(e => e.name)") == []


def test_names_out_of_traces_stay_text(opened: Open) -> None:
    page = opened(html_audits.hostile())
    page.run("document.getElementById('stage').focus()")
    page.keys(Keys.ARROW_RIGHT)
    assert page.run("return document.title").startswith("comm-bound: ")
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert page.run("return document.querySelectorAll('script').length") == 2
    assert page.run("return [...document.links].filter(a => a.protocol === 'javascript:').length") == 0
    assert "</script><script>document.title='owned'</script>" in page.text("#facts code")
    assert "</script><script>" in page.text(".finding h3")
    assert page.complaints() == []
    assert page.requests() == []


@pytest.mark.parametrize(
    "audit", [sample_audits.no_communication(), sample_audits.inconclusive()], ids=["none", "unsure"]
)
def test_an_audit_with_little_in_it_is_a_short_page_that_says_why(opened: Open, audit: Audit) -> None:
    page = opened(audit)
    assert page.text("h1") == audit.verdict.label
    assert page.text(".reason") == audit.verdict.reason
    assert page.run("return [...document.querySelectorAll('section')].map(s => s.id)") == [
        "verdict",
        "measured",
    ]
    assert "nan" not in page.text("main").lower().replace("finance", "")
    assert page.complaints() == []


def test_a_step_of_200_layers_on_8_ranks_is_below_3_mb_and_every_bucket_can_be_reached(
    opened: Open,
) -> None:
    page = opened(html_audits.large())
    assert page.run("return document.documentElement.outerHTML.length") < 3_000_000
    assert len(page.all("#stage .rank")) == 8
    page.run("document.getElementById('stage').focus()")
    page.keys(Keys.END)
    assert page.text("#facts b") == "bucket 199, 4.0 MiB"
    assert page.complaints() == []
