// Addresses: what the address bar says, as plain data, and the addresses of all pages. Nothing here touches the browser.

/** The part of an address behind the host: where one is, and in which view. */
export interface Place {
  path: string
  query: Record<string, string>
}

export type Params = Record<string, string>

/** Reads `/runs/a%20b?log=1`. Of a parameter that is given twice, the last one counts. */
export function parse(address: string): Place {
  const url = new URL(address, "http://here")
  return { path: url.pathname, query: Object.fromEntries(url.searchParams) }
}

/** Writes an address; parameters without a value are left out, the others stand in alphabetical order. */
export function format(path: string, query: Record<string, string | number | null | undefined> = {}): string {
  const pairs = Object.entries(query)
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [name, String(value)] as [string, string])
    .sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
  const text = new URLSearchParams(pairs).toString()
  return text ? `${path}?${text}` : path
}

/** The parameters of a path by a pattern such as `/runs/:run/items/*index`, or null. `*name` takes the rest, with slashes. */
export function match(pattern: string, path: string): Params | null {
  const wanted = pattern.split("/")
  const given = path.split("/")
  const found: Params = {}
  for (const [place, word] of wanted.entries()) {
    const part = given[place]
    if (part === undefined) return null
    if (word.startsWith("*")) {
      const rest = given.slice(place).map(decoded).join("/")
      return rest ? { ...found, [word.slice(1)]: rest } : null
    }
    if (word.startsWith(":")) {
      if (part === "") return null
      found[word.slice(1)] = decoded(part)
    } else if (word !== part) return null
  }
  return wanted.length === given.length ? found : null
}

/** A part of a path as it was before `encodeURIComponent`; what is no such text stays as it is. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

const part = encodeURIComponent
/** A rank in a path: `-` for a process without one. */
export const rankPart = (rank: number | null): string => (rank === null ? "-" : String(rank))

type Query = Record<string, string | number | null | undefined>

/** The addresses of all pages. A page of yours gets its line here. */
export const to = {
  runs: (query: Query = {}) => format("/", query),
  run: (run: string, query: Query = {}) => format(`/runs/${part(run)}`, query),
  steps: (run: string, query: Query = {}) => format(`/runs/${part(run)}/steps`, query),
  step: (run: string, rank: number | null, step: number, query: Query = {}) =>
    format(`/runs/${part(run)}/steps/${rankPart(rank)}/${step}`, query),
  batch: (run: string, one: BatchPlace, query: Query = {}) =>
    format(`/runs/${part(run)}/batches/${rankPart(one.rank)}/${one.loader}/${one.round}/${one.batch}`, {
      process: one.process,
      ...query,
    }),
  items: (run: string, query: Query = {}) => format(`/runs/${part(run)}/items`, query),
  item: (run: string, item: ItemName, query: Query = {}) =>
    format(`/runs/${part(run)}/items/${item.index === null ? `id:${part(item.id ?? "")}` : item.index}`, query),
  layers: (run: string, query: Query = {}) => format(`/runs/${part(run)}/layers`, query),
  layer: (run: string, layer: string, query: Query = {}) => format(`/runs/${part(run)}/layers/${part(layer)}`, query),
  learning: (run: string, query: Query = {}) => format(`/runs/${part(run)}/learning`, query),
  samples: (run: string, query: Query = {}) => format(`/runs/${part(run)}/samples`, query),
  hosts: (run: string, query: Query = {}) => format(`/runs/${part(run)}/hosts`, query),
  timeline: (run: string, query: Query = {}) => format(`/runs/${part(run)}/timeline`, query),
  blackbox: (run: string, query: Query = {}) => format(`/runs/${part(run)}/blackbox`, query),
  traces: (run: string, query: Query = {}) => format(`/runs/${part(run)}/traces`, query),
  trace: (run: string, trace: string, query: Query = {}) => format(`/runs/${part(run)}/traces/${part(trace)}`, query),
  sql: (run: string, query: Query = {}) => format(`/runs/${part(run)}/sql`, query),
  compare: (a: string, b: string, query: Query = {}) => format("/compare", { a, b, ...query }),
}

export interface BatchPlace {
  rank: number | null
  loader: number | null
  round: number | null
  batch: number | null
  process?: string | null
}

/** An item is known by its index, or by the key that its dataset gave it. */
export interface ItemName {
  index: number | null
  id: string | null
}
