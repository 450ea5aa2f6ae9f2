// Sentences of findings with their steps, items, ranks and layers as links: `item 77`, `steps 3 and 4`, `rank 1`. What stands
// between backticks is code.
import { to } from "./address"

export interface Piece {
  text: string
  to: string | null
  code?: boolean
}

export interface Whose {
  run: string
  /** The rank whose step is meant where a sentence names none. */
  rank: number | null
  layers: string[]
}

const ONE = String.raw`\d+(?:,\d{3})*`
const NUMBER = new RegExp(ONE, "g")
// Not behind it: a unit, or more of a number.
const NUMBERED = new RegExp(
  String.raw`\b(items?|steps?|ranks?) (${ONE}(?:(?:, | and | or | to )${ONE})*)(?!\d|[.,]\d| (?:%|x\b|ns\b|µs|ms\b|s\b))`,
  "g",
)

/** A sentence in pieces. Numbers behind `item`, `step` and `rank` lead to these, and so do the names of layers. */
export function linked(sentence: string, whose: Whose): Piece[] {
  const parts = sentence.split("`")
  if (parts.length % 2 === 0) return words(sentence, whose) // an odd one out is no code
  return parts.flatMap((part, at) => (at % 2 ? [{ text: part, to: null, code: true }] : words(part, whose)))
}

function words(sentence: string, whose: Whose): Piece[] {
  const spots: { at: number; text: string; to: string }[] = []
  for (const found of sentence.matchAll(NUMBERED)) {
    const word = found[1] ?? ""
    const list = found[2] ?? ""
    const start = found.index + found[0].length - list.length
    for (const one of list.matchAll(NUMBER)) spots.push(spot(word, start + one.index, one[0], whose))
    const first = spots.at(-[...list.matchAll(NUMBER)].length)
    if (first && !word.endsWith("s")) {
      first.text = sentence.slice(found.index, first.at + first.text.length)
      first.at = found.index
    }
  }
  for (const layer of whose.layers) {
    const at = layer.length > 2 ? sentence.indexOf(layer) : -1
    if (at >= 0) spots.push({ at, text: layer, to: to.layer(whose.run, layer) })
  }
  return pieces(
    sentence,
    spots.sort((a, b) => a.at - b.at),
  )
}

function spot(word: string, at: number, text: string, whose: Whose) {
  const number = Number(text.replaceAll(",", ""))
  if (word.startsWith("item")) return { at, text, to: to.item(whose.run, { index: number, id: null }) }
  if (word.startsWith("step")) return { at, text, to: to.step(whose.run, whose.rank, number) }
  return { at, text, to: to.run(whose.run, { rank: number }) }
}

function pieces(sentence: string, spots: { at: number; text: string; to: string }[]): Piece[] {
  const found: Piece[] = []
  let place = 0
  for (const one of spots) {
    if (one.at < place) continue
    if (one.at > place) found.push({ text: sentence.slice(place, one.at), to: null })
    found.push({ text: one.text, to: one.to })
    place = one.at + one.text.length
  }
  if (place < sentence.length) found.push({ text: sentence.slice(place), to: null })
  return found
}
