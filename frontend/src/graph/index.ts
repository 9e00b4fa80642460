export { GraphView } from "./view";
export type { GraphOptions } from "./view";
export type { GraphData, GraphEdge, GraphNode, ShownEdge } from "./data";
import "./graph.css";
