"""Rules of accessible pages, checked in the page itself: a tab in, what breaks a rule out.

Those of WCAG 2.2 that a program can decide and that these pages could break: names of controls, links and tables, headings,
language, titles, contrast, ids, targets, the order of the keyboard.
"""

from tests.portal.chromium import Tab

SCRIPT = r"""
((contrastAlone) => {
  const problems = [];
  const say = (rule, element) => problems.push(`${rule}: ${element.outerHTML.slice(0, 160)}`);
  const isShown = (element) => element.checkVisibility({ checkVisibilityCSS: true }) && element.getClientRects().length > 0;
  const nameOf = (element) => {
    const by = element.getAttribute("aria-labelledby");
    if (by) return by.split(" ").map((id) => document.getElementById(id)?.innerText || "").join(" ");
    const labels = element.labels ? Array.from(element.labels, (label) => label.innerText).join(" ") : "";
    return (element.getAttribute("aria-label") || labels || element.innerText || element.title || "").trim();
  };
  const parse = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(each).backgroundColor);
      if (a > 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => { const c = part / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !isShown(element) || element.closest(".unseen, .skip, svg, option, [disabled]")) continue;
    const style = getComputedStyle(element);
    const [one, two] = [light(parse(style.color).slice(0, 3)), light(behind(element))].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (one + 0.05) / (two + 0.05);
    if (ratio < (isLarge ? 3 : 4.5)) say(`contrast ${ratio.toFixed(2)}`, element);
  }
  if (contrastAlone) return problems;
  if (!document.documentElement.lang) say("no language", document.documentElement);
  if (!document.title) problems.push("no title");
  if (document.querySelectorAll("h1").length !== 1) problems.push("not exactly one h1");
  if (document.querySelectorAll("main").length !== 1) problems.push("not exactly one main");
  let level = 0;
  document.querySelectorAll("h1, h2, h3, h4").forEach((heading) => {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) say("a heading level is skipped", heading);
    level = next;
  });
  const ids = new Set();
  document.querySelectorAll("[id]").forEach((each) => { if (ids.has(each.id)) say("an id twice", each); ids.add(each.id); });
  document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, summary").forEach((each) => {
    if (!isShown(each)) return;
    if (!nameOf(each) && !each.getAttribute("placeholder")) say("no name", each);
    if (each.tabIndex > 0) say("an order of its own", each);
    const box = each.getBoundingClientRect();
    const isInline = getComputedStyle(each).display === "inline";
    const isBox = ["checkbox", "radio"].includes(each.type);
    if (!isInline && !isBox && (box.width < 24 || box.height < 24) && !each.matches("summary, .skip")) say("a small target", each);
  });
  document.querySelectorAll("input:not([type=hidden]), select, textarea").forEach((each) => {
    if (!each.labels?.length && !each.getAttribute("aria-label")) say("no label", each);
  });
  document.querySelectorAll("table").forEach((each) => {
    if (!each.caption || !each.tHead) say("a table without caption or head", each);
    if (Array.from(each.querySelectorAll("th")).some((head) => !head.innerText.trim() || !head.scope)) say("a head without text or scope", each);
  });
  document.querySelectorAll("[role=img]").forEach((each) => { if (!each.getAttribute("aria-label")) say("a picture without words", each); });
  document.querySelectorAll("[aria-controls]").forEach((each) => { if (!document.getElementById(each.getAttribute("aria-controls"))) say("controls nothing", each); });
  document.querySelectorAll(".wide, pre").forEach((each) => {
    if (each.scrollWidth > each.clientWidth + 1 && each.tabIndex !== 0) say("scrolls without the keyboard", each);
  });
  document.querySelectorAll("ul, ol").forEach((list) => { if (Array.from(list.children).some((child) => child.tagName !== "LI")) say("a list with other children", list); });
  document.querySelectorAll("dl").forEach((list) => {
    if (Array.from(list.children).some((child) => !["DT", "DD", "DIV"].includes(child.tagName))) say("a list of terms with other children", list);
  });
  return problems;
})
"""


def problems_of(tab: Tab, *, contrast_alone: bool = False) -> list[str]:
    found: list[str] = tab.run(f"{SCRIPT.strip()}({'true' if contrast_alone else 'false'})")
    return found
