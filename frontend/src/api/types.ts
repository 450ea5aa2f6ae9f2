// What the server answers: docs/reference/web.md. Durations end in _ns, sizes are bytes, null is not known.

/** A measured number. NaN and infinities come as text. */
export type Num = number | "NaN" | "Infinity" | "-Infinity"

export interface About {
  version: string
  folder: string
  run: string | null
  pid: number
}

export interface RunRow {
  id: string
  name: string
  state: string
  ended: string
  verdict: string | null
  severity: string | null
  steps: number | null
  median_step_ns: number | null
  steps_per_s: number | null
  last_loss: Num | null
  started: string | null
  duration_ns: number | null
  commit: string | null
  tags: string[]
  size: number
  processes: number
  sealed: boolean
  problem: string | null
}

export interface RunList {
  folder: string
  runs: RunRow[]
  pending: number
}

export interface RankHead {
  rank: number | null
  process: string
  host: string
  pid: number | null
  steps: number
  first_step: number | null
  last_step: number | null
}

export interface Head {
  id: string
  name: string
  state: string
  ended: string
  live: boolean
  started: string | null
  duration_ns: number | null
  command: string
  commit: string | null
  tags: string[]
  hosts: string[]
  ranks: RankHead[]
  as_of_step: number | null
  axis: { unit: string; first: number; last: number } | null
  verdict: {
    kind: string
    severity: string
    steps: number
    median_step_ns: number | null
    last_loss: Num | null
  } | null
  has: Record<Feature, boolean>
}

/** What only some runs have. */
export type Feature = "steps" | "layers" | "traces" | "blackbox" | "items" | "learning" | "files" | "samples" | "hosts"

export interface Finding {
  kind: string
  severity: string
  confidence: number
  why: string
  next: string
  evidence: Record<string, unknown>
  because: string | null
}

export interface StepItem {
  index: number | null
  id: string | null
  worker: number | null
  dur_ns: number | null
}

export interface SlowStep {
  step: number
  rank: number | null
  dur_ns: number
  times: number | null
  phase: string | null
  extra_ns: number | null
  phases: Record<string, number>
  items: StepItem[]
}

export interface PhaseRow {
  phase: string
  steps: number
  p50_ns: number | null
  p95_ns: number | null
  p99_ns: number | null
  share: number | null
  warmup_p50_ns: number | null
  device_ns: number | null
}

export interface RankRow {
  rank: number | null
  attempt: number | null
  host: string
  pid: number | null
  state: string
  how: string
  steps: number | null
  last_step: number | null
  p50_ns: number | null
  p95_ns: number | null
  p99_ns: number | null
  own_ns: number | null
  slow: number | null
  worst: boolean
  phases: Record<string, number>
}

export interface MemoryRow {
  who: string
  host: string
  rank: number | null
  what: string
  first: number | null
  last: number | null
  peak: number | null
  limit: number | null
}

export interface ItemRow {
  index: number | null
  id: string | null
  median_ns: number
  max_ns: number
  times: number | null
  fetched: number
}

export interface Report {
  verdict: Finding
  findings: Finding[]
  run: {
    id: string
    name: string
    path: string
    command: string
    state: string
    ended: string
    started: string | null
    dur_ns: number | null
    hosts: string[]
    world_size: number | null
    ranks: number
    trainings: number
    processes: number
    workers: number
    sonde: string | null
    python: string | null
    commit: string | null
    notes: string[]
  }
  steps: {
    count: number
    p50_ns: number | null
    p95_ns: number | null
    p99_ns: number | null
    max_ns: number | null
    mean_ns: number | null
    per_s: number | null
    samples_per_s: number | null
    warmup: number
    warmup_p50_ns: number | null
    skipped: number
    aborted: number
    loss: Num | null
    slowest: SlowStep[]
  }
  phases: PhaseRow[]
  ranks: RankRow[]
  memory: MemoryRow[]
  items: { seen: number; p50_ns: number | null; p99_ns: number | null; max_ns: number | null; slowest: ItemRow[] }
  layers: {
    layer: string
    type: string | null
    share: number | null
    forward_ns: number | null
    backward_ns: number | null
  }[]
  overhead: {
    share: number | null
    worker_share: number | null
    record_ns: number | null
    trainer_records: number
    records: number
    size: number
  }
  blind_spots: { what: string; scope: string }[]
  drops: { count: number | null; reason: string }[]
  black_box: { dumps: number; reasons: string[]; births: number; command: string | null }
  live: boolean
  as_of_step: number | null
  has: Record<Feature, boolean>
}

export interface Line {
  name: string
  unit: string
  rank: number | null
  x: number[]
  y: (number | null)[]
  min: (number | null)[]
  max: (number | null)[]
  clipped: number
  /** Of `step`: the longest step of each point, and its rank. */
  slowest: [number | null, number | null][] | null
  /** The medians, as of very many steps. */
  estimated?: boolean
}

export interface Series {
  axis: "step" | "time" | null
  from: number | null
  to: number | null
  series: Line[]
}

/** Rows as lists, with the names of their columns. */
export interface Rows {
  total: number
  median_ns: number | null
  columns: string[]
  rows: unknown[][]
}

export interface Grown {
  version: string
  as_of_step: number | null
  view: WatchView
  /** Of all ranks together (`all`) and of each, if they are few. */
  recent: Record<string, Recent>
}

/** The steps since the last event. */
export interface Recent {
  step: number[]
  time_ns: number[]
  dur_ns: number[]
  min_ns: number[]
  max_ns: number[]
  slowest: (number | null)[]
  samples: (number | null)[]
  phases: Record<string, (number | null)[]>
  loss: Num | null
}

export interface WatchView {
  headline: {
    state: string
    elapsed_ns: number | null
    step: number | null
    epoch: number | null
    batch: number | null
    batches: number | null
    epoch_left_ns: number | null
    steps_per_s: number | null
    samples_per_s: number | null
    loss: Num | null
    ranks: number
    workers: number
  }
  notices: string[]
}

/** One row of the table `steps`. */
export interface StepRow {
  rank: number | null
  step: number
  epoch: number | null
  start_ns: number
  dur_ns: number
  micro_batches: number | null
  samples: number | null
  loss: Num | null
  warmup: boolean
  skipped: boolean | null
  gc_ns: number | null
  device_peak_bytes: number | null
  process: string
  times: number | null
  [phase: `${string}_ns`]: number | null
}

export interface Slice {
  name: string
  cat: string
  start_ns: number
  dur_ns: number | null
  depth: number
  seq: number
  error: boolean
  process: string
  /** Of an item: which one. */
  index: number | null
  /** Of what is about a batch: its loader, round and number. */
  batch: [number, number, number] | null
}

export interface StepLane {
  lane: string
  rank: number | null
  role: string
  worker: number | null
  thread: string | null
  slices: Slice[]
}

export interface BatchHead {
  rank: number | null
  process: string
  loader: number | null
  round: number | null
  batch: number | null
  worker: number | null
  size: number | null
  start_ns: number | null
  wait_ns: number | null
  fetch_ns: number | null
  purpose: string | null
}

export interface WholeStep {
  step: StepRow
  from: number
  to: number
  phases: {
    rank: number | null
    process: string
    phase: string
    start_ns: number | null
    dur_ns: number | null
    calls: number | null
  }[]
  lanes: StepLane[]
  batches: BatchHead[]
  previous: number | null
  next: number | null
  /** That have this step; the lanes are those of some of them. */
  ranks: number
  left_out: number
}

export interface BatchItem {
  position: number
  index: number | null
  id: string | null
  worker: number | null
  start_ns: number | null
  dur_ns: number | null
  error: boolean | null
  bytes: number | null
  file: string | null
  thumbnail: string | null
  guilty: boolean
}

export interface WholeBatch {
  batch: BatchHead & { epoch: number | null; step: number | null; collate_ns: number | null; host: string }
  step: number | null
  items: BatchItem[]
  kept: string | null
  previous: number | null
  next: number | null
}

export interface Load {
  rank: number | null
  process: string
  loader: number | null
  round: number | null
  batch: number | null
  position: number | null
  step: number | null
  worker: number | null
  start_ns: number | null
  dur_ns: number | null
  error: boolean | null
  /** Of the step that used its batch. */
  step_loss: Num | null
}

/** One value of an item, as it was kept somewhere. */
export interface ItemValue {
  stage: string
  source: string
  step: number | null
  field: string
  shape: number[]
  dtype: string | null
  low: number | null
  high: number | null
  nonfinite: number
  image: string | null
  curve: { low: (number | null)[]; high: (number | null)[]; bad: number[]; bins: number[] } | null
  numbers: string[]
  /** Where the whole array is, below the run; null: it is not kept. */
  array: string | null
}

/** A value that the program gave to `sonde.log_items`. */
export interface ItemLoss {
  name: string
  purpose: string | null
  step: number | null
  rank: number | null
  loader: number | null
  round: number | null
  batch: number | null
  position: number | null
  value: Num | null
}

export interface WholeItem {
  item: {
    index: number | null
    id: string | null
    loads: number
    median_ns: number | null
    max_ns: number | null
    total_ns: number | null
    times: number | null
  }
  loads: Load[]
  files: { path: string; calls: number; bytes: number; dur_ns: number }[]
  values: ItemValue[]
  /** The mean of those in training that the program gave to `sonde.log_items`. */
  loss: Num | null
  losses: ItemLoss[]
  replay: string | null
  left_out: number
}

/** A call in a flame graph, with what it called. */
export interface Call {
  name: string
  dur_ns: number
  calls: Call[]
}

export interface SampledLine {
  phase: string
  function: string
  file: string
  line: number | null
  looks: number
  dur_ns: number
  share: number
}

export interface Drawing {
  title: string
  lines: { name: string; x: number[]; y: number[] }[]
}

export interface Learning {
  metrics: {
    name: string
    source: string
    count: number
    first: Num
    last: Num
    last_step: number | null
    low: Num
    low_step: number | null
    high: Num
    high_step: number | null
  }[]
  evaluation: Drawing[]
  sampled: Drawing[]
}

export interface Attempt {
  number: number
  started_ns: number | null
  ran_ns: number | null
  waited_ns: number | null
  ranks: number
  first_step: number | null
  last_step: number | null
  steps: number
  repeated: number | null
  repeated_ns: number | null
}

export interface Heat {
  unit: "step" | "ns"
  first: number
  width: number
  high_ns: number
  /** The latest first; for each piece of the axis how late, and the slowest rank. */
  hosts: { host: string; late_ns: (number | null)[]; rank: (number | null)[] }[]
}

export interface Hosts {
  goodput: {
    share: number | null
    steps: number | null
    repeated: number | null
    whole_ns: number
    steps_ns: number | null
    repeated_ns: number | null
    between_ns: number
    other_ns: number
    attempts: Attempt[]
    line: string
    advice: string | null
  } | null
  clocks: {
    host: string
    ranks: number
    ahead: string
    error: string
    drift: string
    basis: string
    was_set: string
    jumps: number | null
  }[]
  about_clocks: string
  heat: Heat | null
}

/** Numbers of an array, in the order of its last dimension. */
export interface ArrayHead {
  shape: number[]
  dtype: string
  /** Height, width and colours, if it is an image. */
  image: [number, number, number] | null
  /** Only each so many-th row and column is there. */
  stride: number
}

export interface SqlColumn {
  name: string
  type: string
}

export interface Schema {
  tables: { name: string; columns: SqlColumn[] }[]
  examples: { title: string; sql: string }[]
}

export interface SqlAnswer {
  columns: SqlColumn[]
  rows: unknown[][]
  truncated: boolean
  ns: number
}

/** A number of two runs, and B / A with its interval. */
export interface Ratio {
  a: number | null
  b: number | null
  ratio: number | null
  low: number | null
  high: number | null
  verdict: string | null
}

export interface Named {
  name: string
  ratio: Ratio
}

export interface ComparedPhase {
  phase: string
  a_ns: number | null
  b_ns: number | null
  difference_ns: number | null
  low_ns: number | null
  high_ns: number | null
  verdict: string | null
}

export interface ComparedRun {
  id: string
  name: string
  ended: string
  steps: number
  warmup: number
  verdict: string | null
}

export interface Divergence {
  step: number
  what: string
  rank: number
  a: unknown
  b: unknown
  difference: number | null
  layer: string | null
  direction: string | null
}

export interface FoundProblem {
  kind: string
  severity: string
  why: string
  next: string
}

/** What `sonde compare --json` says of two runs. */
export interface Comparison {
  verdict: string
  reasons: string[]
  next: string
  step_time: Ratio & {
    margin: number
    more_steps: number | null
    p10: Ratio | null
    mean: Ratio | null
    own: Ratio | null
  }
  throughput: Ratio
  phases: ComparedPhase[]
  ranks: Named[]
  layers: Named[]
  memory: Named[]
  items: { a: number; b: number; load: Ratio; rows: { item: string; a_ns: number | null; b_ns: number | null }[] }
  findings: { new: FoundProblem[]; gone: FoundProblem[]; both: FoundProblem[] }
  settings: { name: string; a: unknown; b: unknown }[]
  distribution: { edges_ns: number[]; a: number[]; b: number[] } | null
  notes: string[]
  a: ComparedRun
  b: ComparedRun
  numbers: {
    identical: boolean | null
    first_difference: Divergence | null
    steps: number
    shift: number
    streams: { what: string; compared: number; first_step: number | null; first_difference: Divergence | null }[]
    text: string
  }
  resume: { text: string[] }[]
}

/** A layer, or a part of the model with the sums of what is in it. */
export interface LayerNode {
  layer: string
  name: string
  parent: string | null
  depth: number
  inside: number
  type: string | null
  steps: number | null
  calls: number | null
  forward_ns: number | null
  backward_ns: number | null
  share: number | null
  activation_bytes: number | null
  parameter_bytes: number | null
  gradient_bytes: number | null
  compiled: boolean
  learned: {
    samples: number
    gradient_norm: Num | null
    update_ratio: Num | null
    nonfinite: Num | null
    dead: Num | null
  }
}

export interface WholeLayer {
  layer: Omit<LayerNode, "name" | "parent" | "depth" | "inside" | "learned">
  steps: number[]
  forward_ns: (number | null)[]
  backward_ns: (number | null)[]
  longest_ns: (number | null)[]
  activation_bytes: (number | null)[]
  width: number
  learning: { name: string; x: number[]; y: (Num | null)[] }[]
}

/** One value of one item, as a page of the black box has it. */
export interface CaseValue {
  path: string
  shape: number[]
  low: number | null
  high: number | null
  nonfinite: number
  picture: string | null
  curve: ItemValue["curve"]
  numbers: string[]
  array: string | null
}

export interface Case {
  batch: number
  items: { name: string; position: number; guilty: boolean; values: CaseValue[] }[]
  first: number
  more: number
  notes: string[]
  scales: Record<string, [number, number]>
}

export interface AffectedItem {
  position: number | null
  index: number | null
  id: string | null
}

export interface Certificate {
  where: string
  producer: boolean
  layer: string | null
  type: string | null
  op: string | null
  stage: string | null
  kind: string | null
  inputs: {
    name: string
    shape: number[] | null
    dtype: string | null
    min: Num | null
    max: Num | null
    mean: Num | null
    finite?: boolean | null
  }[]
  items: AffectedItem[]
  items_total: number
  batch: number | null
  step: number | null
  epoch: number | null
  evaluation: boolean
}

export interface Birth {
  sentence: string
  amount: string
  code: string | null
  next: string
  rank: number | null
  worker: number | null
  host: string | null
  pid: number | null
  certificate: Certificate
}

export interface BoxBatch {
  who: string
  step: number | null
  epoch: number | null
  loader: number | null
  batch: number | null
  size: number | null
  worker: number | null
  indices: (number | null)[]
  ids: (string | null)[]
  loss: Num | null
  digest: string | null
  sampled: boolean
  changed: boolean | null
  kept: string | null
  values: {
    path: string
    type: string | null
    shape: number[] | null
    dtype: string | null
    min: Num | null
    max: Num | null
    mean: Num | null
    std: Num | null
    nonfinite: number | null
    file: string | null
    cut: boolean
  }[]
}

/** What `sonde blackbox --json` says, with the items of the batches. */
export interface BlackBox {
  made_of: string
  empty: boolean
  headline: string | null
  births: Birth[]
  later: number
  raised: {
    who: string
    type: string
    message: string
    item: string | null
    index: number | null
    id: string | null
    step: number | null
    frames: string[]
    next: string
  } | null
  dump: string | null
  dumps: {
    number: number
    folder: string
    why: string
    who: string
    step: number | null
    batches: number
    shown: boolean
  }[]
  batches: BoxBatch[]
  open: { who: string; label: string; for_ns: number | null; thread: string | null }[]
  threads: { name: string; current: boolean; frames: string[] }[]
  left_out: string[]
  notes: string[]
  cases: Case[]
}

export interface TraceFile {
  name: string
  file: string
  size: number
}

/** A value that a trace caught, with what is in it. */
export interface TracedValue {
  way?: "in" | "left" | "out"
  name: string
  kind: string
  type: string
  nonfinite: number | null
  // of arrays
  shape?: number[]
  dtype?: string | null
  device?: string | null
  digest?: string | null
  low?: Num | null
  high?: Num | null
  mean?: Num | null
  std?: Num | null
  cut?: boolean
  numbers?: (Num | boolean)[]
  pictures?: { row: number | null; picture: string }[]
  scale?: [number, number] | null
  array?: string | null
  // of others
  text?: string
  length?: number | null
  children?: TracedValue[]
  left_out?: number
}

export interface TracedCall {
  seq: number
  parent: number | null
  function: string
  result: string
  duration_ns: number | null
  phase: string | null
  epoch: number | null
  step: number | null
  batch: number | null
  worker: number | null
  pid: number
  error: string | null
  items: { position: number; index: number | string | null; id: string | null }[]
  items_total: number
  values: TracedValue[]
}

export interface Trace {
  name: string
  item: string | null
  items: { index: number | string | null; id: string | null; name: string }[]
  notes: string[]
  findings: {
    kind: string
    severity: string
    why: string
    next: string
    targets: { call: number; words: string; item: number | string | null }[]
  }[]
  stages: { name: string; calls: TracedCall[]; left_out: number }[]
  pictures_left_out: number
}

export interface TraceDiff {
  same: boolean
  text: string
  compared: number
  differences: { stage: string; function: string; items: string; field: string; a: string; b: string }[]
  total: number
  only_a: string[]
  only_b: string[]
}
