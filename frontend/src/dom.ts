/** Elements of the page, made without HTML: column names and cells are untrusted text. */

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown>;

/** An element with attributes, listeners (onclick) and children; texts are only ever text. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: (Child | Child[])[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (name === "value") (element as unknown as { value: string }).value = String(value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, String(value));
  }
  element.append(...nodes(children));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** An element of SVG; like `h`. */
export function svg(tag: string, props: Props = {}, ...children: (Child | Child[])[]): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props)) if (value !== undefined) element.setAttribute(name, String(value));
  element.append(...nodes(children));
  return element;
}

function nodes(children: (Child | Child[])[]): (Node | string)[] {
  return children
    .flat()
    .filter((child): child is Node | string | number => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === "number" ? String(child) : child));
}

/** Put these children in place of all others. */
export function fill(element: Element, ...children: (Child | Child[])[]): void {
  element.replaceChildren(...nodes(children));
}

/** A probability as people read it; never a certainty that nobody has. */
export function percent(probability: number): string {
  if (probability < 0.01) return "< 1 %";
  if (probability > 0.99) return "> 99 %";
  return `${Math.round(100 * probability)} %`;
}
