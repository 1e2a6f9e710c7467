// Visits the console in Debian's Chromium, and prints what it saw as JSON:
//     node browse.mjs '{"base": "http://…", "paths": ["/", …], "widths": [1280, 400], "shots": "FOLDER or empty"}'
// playwright-core and axe-core lie beside this file, where the test installed them.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const wanted = JSON.parse(process.argv[2]);
const browser = await chromium.launch({
  executablePath: wanted.browser,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});

// of a text that is cut off, or of a page wider than the window
const overflow = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;

const paint = () => new Promise((resolve) => {
  const known = performance.getEntriesByName("first-contentful-paint")[0];
  if (known) return resolve(known.startTime);
  new PerformanceObserver((list) => {
    const found = list.getEntriesByName("first-contentful-paint")[0];
    if (found) resolve(found.startTime);
  }).observe({ type: "paint", buffered: true });
});

const visits = [];
for (const scheme of wanted.schemes) {
  for (const width of wanted.widths) {
    const context = await browser.newContext({
      colorScheme: scheme, viewport: { width, height: 800 }, httpCredentials: wanted.credentials ?? undefined,
    });
    for (const path of wanted.paths) {
      const page = await context.newPage();
      const errors = [], requests = [];
      page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
      page.on("pageerror", (error) => errors.push(String(error)));
      page.on("dialog", (dialog) => { errors.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
      page.on("request", (request) => requests.push(request.url()));
      const answer = await page.goto(wanted.base + path);
      if (/^\/topics\/[^/]+\/[^/]+\/\d+$/.test(path)) await page.waitForSelector(".map");
      const seen = { path, scheme, width, status: answer.status(), paint_ms: await page.evaluate(paint) };
      seen.bytes = (await answer.body()).length;
      seen.overflow = await page.evaluate(overflow);
      seen.ground = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
      seen.title = await page.title();
      await page.evaluate(axe);  // not a script of the page: its policy would refuse it
      const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
      seen.violations = found.violations.map((one) => ({
        id: one.id, impact: one.impact, nodes: one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)),
      }));
      if (wanted.shots) {
        const name = path === "/" ? "overview" : path.slice(1).replaceAll(/[^a-z0-9]+/gi, "-");
        await page.screenshot({ path: `${wanted.shots}/${name}-${scheme}-${width}.png`, fullPage: wanted.full ?? true });
      }
      visits.push({ ...seen, errors, requests });
      await page.close();
    }
    await context.close();
  }
}

// keys alone: the focus goes over the skip link and the navigation, and enters the table that scrolls
const page = await browser.newPage({
  viewport: { width: 400, height: 800 }, httpCredentials: wanted.credentials ?? undefined,
});
await page.goto(`${wanted.base}/topics`);
const stops = [];
for (let n = 0; n < 14; n += 1) {
  await page.keyboard.press("Tab");
  stops.push(await page.evaluate(() => {
    const at = document.activeElement, style = getComputedStyle(at);
    return { tag: at.tagName, text: (at.textContent || at.getAttribute("aria-label") || "").trim().slice(0, 40),
      outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 };
  }));
}
await page.goto(`${wanted.base}/topics`);
await page.keyboard.press("Tab");
await page.keyboard.press("Enter");
const skipped = await page.evaluate(() => document.activeElement.id);
await page.focus("#q");
await page.keyboard.type("payments");
await page.keyboard.press("Enter");
await page.waitForURL(/q=payments/);
const searched = await page.locator("tbody tr").count();
await page.close();
await browser.close();
console.log(JSON.stringify({ visits, stops, skipped, searched }));
