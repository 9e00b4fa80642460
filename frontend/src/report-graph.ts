/** The graph of a report: `vcudaGraph(host, data, options)` for the script of the page. */

import { GraphView } from "./graph";
import type { GraphData, GraphOptions } from "./graph";

declare global {
  interface Window {
    vcudaGraph: (host: HTMLElement, data: GraphData, options?: GraphOptions) => GraphView;
  }
}

window.vcudaGraph = (host, data, options) => new GraphView(host, data, options);
