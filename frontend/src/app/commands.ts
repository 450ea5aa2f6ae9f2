// What the command palette offers: commands of the pages that are shown, and jumps that are typed.
import { signal } from "@preact/signals"
import { useEffect } from "preact/hooks"

export interface Command {
  name: string
  hint?: string
  /** Where it leads, or what it does. */
  to?: string
  act?: () => void
}

/** Commands for a text that was typed, such as `step 340`. */
export type Jump = (text: string) => Command[]

interface Source {
  commands: Command[]
  jump: Jump | undefined
}

const sources = signal<Source[]>([])
export const paletteOpen = signal(false)

/** Offers commands while the component is shown. Give a list that stays the same between two drawings (`useMemo`). */
export function useCommands(commands: Command[], jump?: Jump): void {
  useEffect(() => {
    const source = { commands, jump }
    sources.value = [source, ...sources.peek()]
    return () => {
      sources.value = sources.peek().filter(one => one !== source)
    }
  }, [commands, jump])
}

/** The commands that fit what was typed, the best first. */
export function suggestions(typed: string, most = 12): Command[] {
  const text = typed.trim().toLowerCase()
  const jumps = sources.value.flatMap(one => one.jump?.(text) ?? [])
  const all = sources.value.flatMap(one => one.commands)
  if (!text) return all.slice(0, most)
  const ranked = all
    .map(command => ({ command, score: closeness(`${command.name} ${command.hint ?? ""}`.toLowerCase(), text) }))
    .filter(one => one.score > 0)
    .sort((a, b) => b.score - a.score)
  return [...jumps, ...ranked.map(one => one.command)].slice(0, most)
}

/** How well a name fits: as a whole, at the start of a word, with all words somewhere, or letter by letter; 0: not at all. */
export function closeness(name: string, text: string): number {
  const at = name.indexOf(text)
  if (at === 0) return 4
  if (at > 0) return /\W/.test(name[at - 1] ?? "") ? 3 : 2
  const words = text.split(/\s+/)
  if (words.length > 1 && words.every(word => name.includes(word))) return 1.5
  let place = 0
  for (const letter of text) {
    place = name.indexOf(letter, place) + 1
    if (place === 0) return 0
  }
  return 1
}
