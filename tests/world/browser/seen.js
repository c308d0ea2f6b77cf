// What a person would see of the page, as lists of complaints.

const canvas = document.createElement("canvas");
canvas.width = canvas.height = 1;
const pen = canvas.getContext("2d", { willReadFrequently: true });
const known = new Map(); // colors, as painting one takes long
const grounds = new Map(); // of elements

function rgba(color) {
  if (!known.has(color)) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    known.set(color, [r, g, b, a / 255]);
  }
  return [...known.get(color)];
}

function over(top, below) {
  return [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
}

function paper() {
  const probe = document.body.appendChild(document.createElement("div"));
  probe.style.background = "Canvas";
  const found = rgba(getComputedStyle(probe).backgroundColor);
  probe.remove();
  return found;
}

function behind(element) {
  if (!element) return paper();
  if (!grounds.has(element)) {
    const ground = rgba(getComputedStyle(element).backgroundColor);
    grounds.set(element, over(ground, behind(element.parentElement)));
  }
  return grounds.get(element);
}

function luminance(color) {
  const [r, g, b] = color.slice(0, 3).map((each) => {
    const c = each / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(element) {
  const below = behind(element);
  let color = rgba(getComputedStyle(element).color);
  for (let each = element; each; each = each.parentElement) {
    color[3] *= Number(getComputedStyle(each).opacity);
  }
  const [light, dark] = [luminance(over(color, below)), luminance(below)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

function texts() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const isText = walker.currentNode.data.trim() && !["STYLE", "SCRIPT"].includes(element.tagName);
    if (isText && element.getClientRects().length) found.push(element);
  }
  return found;
}

function faint(least) {
  return texts()
    .filter((each) => contrast(each) < least)
    .map((each) => `contrast ${contrast(each).toFixed(2)}: ${each.textContent.slice(0, 60)}`);
}

function overflow() {
  const width = document.documentElement.clientWidth;
  const found = [];
  if (document.documentElement.scrollWidth > width) {
    found.push(`the page is ${document.documentElement.scrollWidth} wide, of ${width}`);
  }
  for (const each of texts()) {
    const box = each.getBoundingClientRect();
    if (box.right > width + 1 || box.left < -1) {
      found.push(`beyond the edge: ${each.textContent.slice(0, 60)}`);
    }
  }
  return found;
}

function empty() {
  const found = texts().length ? [] : ["the page has no text"];
  for (const each of document.querySelectorAll("canvas, img, svg")) {
    const { width, height } = each.getBoundingClientRect();
    if (!width || !height || each.naturalWidth === 0) found.push(`empty: ${each.outerHTML.slice(0, 60)}`);
  }
  return found;
}

function place(selector) {
  const box = document.querySelector(selector).getBoundingClientRect();
  return [box.left + scrollX, box.top + scrollY, box.width, box.height];
}
