// The filter of the table of steps: what one types, and what the address and the server get.

/** As in the address, and as the server takes it. */
export interface Filter {
  where: string[] // slow, nan, skipped, warmup
  over: number // of `slow`: times the median
  rank: number | null
  epoch: number | null
  from: number | null // steps
  to: number | null
}

export const NONE: Filter = { where: [], over: 3, rank: null, epoch: null, from: null, to: null }

type Reader = (found: RegExpExecArray, filter: Filter) => Filter

const also = (filter: Filter, word: string): Filter => ({ ...filter, where: [...new Set([...filter.where, word])] })

const WORDS: [RegExp, Reader][] = [
  [
    /^(?:took )?> ?(\d+(?:\.\d+)?) ?x(?: (?:the )?median)?$/,
    (found, filter) => ({ ...also(filter, "slow"), over: Number(found[1]) }),
  ],
  [/^slow$/, (_, filter) => also(filter, "slow")],
  [/^(?:loss (?:is |= ?)?)?(?:nan|inf|infinite|not finite)$/, (_, filter) => also(filter, "nan")],
  [/^skipped$/, (_, filter) => also(filter, "skipped")],
  [/^warm-?up$/, (_, filter) => also(filter, "warmup")],
  [/^rank ?=? ?(\d+)$/, (found, filter) => ({ ...filter, rank: Number(found[1]) })],
  [/^epoch ?=? ?(\d+)$/, (found, filter) => ({ ...filter, epoch: Number(found[1]) })],
  [
    /^steps? ?=? ?(\d+) ?(?:-|to|\.\.) ?(\d+)$/,
    (found, filter) => ({ ...filter, from: Number(found[1]), to: Number(found[2]) }),
  ],
  [/^steps? ?>=? ?(\d+)$/, (found, filter) => ({ ...filter, from: Number(found[1]) })],
  [/^steps? ?<=? ?(\d+)$/, (found, filter) => ({ ...filter, to: Number(found[1]) })],
]

/** Reads `> 3x median, loss is nan, rank 1`. What is not understood is given back. */
export function read(text: string): { filter: Filter; wrong: string | null } {
  let filter = NONE
  for (const part of text.toLowerCase().split(/,|;|\band\b/)) {
    const words = part.trim().replace(/\s+/g, " ")
    if (!words) continue
    const fitting = WORDS.map(([pattern, reader]) => ({ found: pattern.exec(words), reader })).find(one => one.found)
    if (!fitting?.found) return { filter, wrong: words }
    filter = fitting.reader(fitting.found, filter)
  }
  return { filter, wrong: null }
}

const NAMES: Record<string, string> = { nan: "loss is nan", skipped: "skipped", warmup: "warm-up" }

/** Writes a filter as one would type it. */
export function write(filter: Filter): string {
  const parts = filter.where.map(word => (word === "slow" ? `> ${filter.over}x median` : (NAMES[word] ?? word)))
  if (filter.rank !== null) parts.push(`rank ${filter.rank}`)
  if (filter.epoch !== null) parts.push(`epoch ${filter.epoch}`)
  if (filter.from !== null && filter.to !== null) parts.push(`step ${filter.from} to ${filter.to}`)
  else if (filter.from !== null) parts.push(`step >= ${filter.from}`)
  else if (filter.to !== null) parts.push(`step <= ${filter.to}`)
  return parts.join(", ")
}

/** The filter of an address. */
export function ofQuery(query: Record<string, string>): Filter {
  const number = (text: string | undefined) =>
    text !== undefined && /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : null
  return {
    where: (query.where ?? "").split(",").filter(word => word === "slow" || word in NAMES),
    over: number(query.over) ?? NONE.over,
    rank: number(query.rank),
    epoch: number(query.epoch),
    from: number(query.from),
    to: number(query.to),
  }
}

/** What the address, and the server, get. */
export function toQuery(filter: Filter): Record<string, string | number | null> {
  const slow = filter.where.includes("slow")
  return {
    where: filter.where.join(",") || null,
    over: slow && filter.over !== NONE.over ? filter.over : null,
    rank: filter.rank,
    epoch: filter.epoch,
    from: filter.from,
    to: filter.to,
  }
}
