/** What the server is asked, and what it answers. */

export interface Progress {
  doing: string;
  share: number;
  detail: string;
  seconds_left: number | null;
}

export interface Job {
  run: string;
  state: "waiting" | "running" | "stopping" | "finished" | "stopped" | "failed";
  progress: Progress | null;
  lines: string[];
  seconds: number;
}

export type Question = { kind: "all" } | { kind: "target"; target: string } | { kind: "pair"; cause: string; outcome: string };

export interface Asked {
  table?: string;
  question?: Question;
  when?: string;
  words?: string[];
  knowledge?: Knowledge | null;
}

export interface Run {
  name: string;
  when: number;
  finished: boolean;
  resumable: boolean;
  status?: string;
  rows?: number;
  columns?: number;
  seconds?: number;
  asked: Asked;
}

export interface State {
  version: string;
  folder: string;
  tables: { name: string; size: number | null }[];
  opened: string | null;
  examples: { name: string; title: string }[];
  runs: Run[];
  jobs: Record<string, Job>;
  upload_limit: number;
}

export const KINDS = ["number", "count", "yes/no", "ordered", "label"] as const;

export interface Column {
  name: string;
  kind: string | null;
  why: string;
  missing?: number;
  /** A number, such as -999, that may stand for a missing value. */
  code?: string;
  bars?: [string, number][];
  more_labels?: number;
  mean?: number;
  sd?: number;
  min?: number;
  max?: number;
}

export interface Inspected {
  source: string;
  rows: number;
  sampled: boolean;
  columns: Column[];
  notes: string[];
  /** How the rows are taken, in sentences. */
  taken_as: string[];
  interventions: string | null;
}

export interface Knowledge {
  required: [string, string][];
  forbidden: [string, string][];
  tiers: string[][];
  within_tiers: boolean;
  roots: string[];
  sinks: string[];
}

export interface Table {
  title: string;
  head: string[];
  numeric: boolean[];
  rows: string[][];
  more: number;
}

export interface Result {
  names: string[];
  kinds: string[] | null;
  /** Ends, probability, in doubt, known, lag, probability of a hidden cause. */
  edges: [string, string, number, boolean, boolean, number, number][];
  /** Lags in words, of rows that are steps in time. */
  when: string[] | null;
  /** What only some fits have to tell. */
  sections: { id: string; title: string; sentences: string[]; table: Table }[];
  /** Questions that this result does not answer, each with a sentence. */
  cannot: { why?: string; effects?: string; next?: string };
  found: string;
  found_more: string[];
  first: { source: string; target: string; is_open: boolean; probability: number; in_doubt: boolean; note: string }[];
  sure: string[];
  wrong: string[];
  verdict: string;
  status: string;
  trust: [string, string][];
  checks: { summary: string; findings: Finding[] };
  notes: string[];
  settings: [string, string][];
  source: string;
  rows: number;
  seconds: number;
  seed: number;
  python: string;
  shell: string | null;
  exports: Record<string, string[]>;
  asked: Asked;
}

export interface Finding {
  check: string;
  severity: string;
  sentence: string;
  changes: string;
  remedy: string;
  edges: [string, string][];
}

export interface Effect {
  cause: string;
  outcome: string;
  answer: string;
  caveat: string;
  probability_zero: number;
  mean?: number;
  low?: number;
  high?: number;
  measure?: string;
  unit?: string;
  before?: string;
  after?: string;
  curve?: { x: number; mean: number; low: number; high: number }[];
  /** What steps are called where the curve says what follows later. */
  later?: string;
  tables: Table[];
}

export interface Driver {
  driver: string;
  direct: number;
  upstream: number;
  measure: string;
  unit: string;
  effect: number | null;
  low: number | null;
  high: number | null;
  sentence: string;
}

export interface Drivers {
  target: string;
  drivers: Driver[];
  note: string;
  caveat: string;
  sentences: string[];
}

export interface Why {
  sentences: string[];
  tables: Table[];
  notes: string[];
}

export interface Comparison {
  sum_of_differences: number;
  pairs_that_differ: number;
  only_here: string[];
  only_there: string[];
  edges: { source: string; target: string; probability: number; other: number; difference: number }[];
}

/** A sentence from the server about what is wrong, with what else it knows. */
export class Refused extends Error {
  constructor(
    sentence: string,
    readonly faults: string[] = [],
    readonly columns: Column[] = [],
  ) {
    super(sentence);
  }
}

async function answer<T>(response: Response): Promise<T> {
  const content = (await response.json().catch(() => ({}))) as Record<string, unknown>;
  if (response.ok) return content as T;
  const sentence = typeof content.error === "string" ? content.error : `The server answered ${response.status}.`;
  throw new Refused(sentence, (content.faults as string[]) ?? [], (content.columns as Column[]) ?? []);
}

async function ask(address: string, init?: RequestInit): Promise<Response> {
  try {
    return await fetch(address, init);
  } catch {
    throw new Refused("vcuda app does not answer: is it still running in the terminal?");
  }
}

export async function get<T>(address: string): Promise<T> {
  return answer<T>(await ask(address));
}

export async function post<T>(address: string, body: unknown = {}): Promise<T> {
  return answer<T>(await ask(address, { method: "POST", body: JSON.stringify(body) }));
}

/** Send a file as it is; the browser reads it from the disk piece by piece. */
export async function upload(file: File, limit: number): Promise<{ table: string }> {
  if (file.size > limit)
    throw new Refused(
      `The file has ${(file.size / 1e9).toFixed(1)} GB, and the app takes uploads up to ${(limit / 1e9).toFixed(1)} GB. ` +
        "Start it with that file instead (vcuda app FILE): then it is read where it is.",
    );
  const address = `/api/tables?name=${encodeURIComponent(file.name)}`;
  return answer(await ask(address, { method: "POST", body: file }));
}

export function runAddress(run: string, ...rest: string[]): string {
  return `/api/runs/${[run, ...rest].map(encodeURIComponent).join("/")}`;
}

export function query(values: Record<string, string>): string {
  return `?${new URLSearchParams(values)}`;
}

/** Fetch a file and hand it to the browser to keep; what cannot be written is refused with a sentence. */
export async function download(address: string): Promise<void> {
  const response = await ask(address);
  if (!response.ok) await answer(response);
  const name = /filename\*=UTF-8''([^;]+)/.exec(response.headers.get("content-disposition") ?? "")?.[1] ?? "download";
  keep(await response.blob(), decodeURIComponent(name));
}

export function keep(content: Blob, name: string): void {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
