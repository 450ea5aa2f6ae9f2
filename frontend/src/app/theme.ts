// Colours: the palette that the HTML report has too, as CSS variables and as values for canvases. Light or dark as the system says.
import { signal } from "@preact/signals"
import palette from "../../../src/sonde/views/palette.json"

export type Theme = "light" | "dark"
const dark = window.matchMedia("(prefers-color-scheme: dark)")
const CHOICE = "sonde-theme"

function chosen(): Theme | null {
  try {
    const found = window.localStorage.getItem(CHOICE)
    return found === "light" || found === "dark" ? found : null
  } catch {
    return null // a report that is shown inside of another page
  }
}

/** Which theme is shown. */
export const theme = signal<Theme>(chosen() ?? (dark.matches ? "dark" : "light"))

/** Choose a theme for this browser; null: as the system says. */
export function chooseTheme(wanted: Theme | null): void {
  if (wanted) window.localStorage.setItem(CHOICE, wanted)
  else window.localStorage.removeItem(CHOICE)
  apply()
}

type Word = keyof typeof palette.light

/** A colour of the theme by its name, for canvases. */
export function colour(word: Word): string {
  return palette[theme.value][word]
}

/** The colour of a phase. What is no phase is grey. */
export function phaseColour(phase: string): string {
  const found = palette.phases[phase as keyof typeof palette.phases] ?? palette.phases.residual
  return found[theme.value]
}

/** The colour of the n-th of several lines. */
export function lineColour(place: number): string {
  return palette.lines[place % palette.lines.length] as string
}

export const PHASE_ORDER = Object.keys(palette.phases)

function rules(which: Theme): string {
  const phases = Object.entries(palette.phases).flatMap(([phase, one]) => [
    [`phase-${phase}`, one[which]],
    [`on-${phase}`, readableOn(one[which])],
  ])
  return [...Object.entries(palette[which]), ...phases].map(([name, value]) => `--${name}:${value}`).join(";")
}

const WHITE = "#ffffff"
const BLACK = "#10141b"

/** White or black, whichever can be read on a colour. */
export function readableOn(background: string): string {
  const contrast = (text: string) => {
    const [dim = 0, bright = 0] = [luminance(background), luminance(text)].sort((a, b) => a - b)
    return (bright + 0.05) / (dim + 0.05)
  }
  return contrast(WHITE) >= contrast(BLACK) ? WHITE : BLACK
}

function luminance(hex: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map(at => {
    const part = Number.parseInt(hex.slice(at, at + 2), 16) / 255
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}

/** A class for each phase: its colour, and what can be read on it. */
function fills(): string {
  return PHASE_ORDER.map(phase => `.fill-${phase}{background:var(--phase-${phase});color:var(--on-${phase})}`).join("")
}

function apply(): void {
  theme.value = chosen() ?? (dark.matches ? "dark" : "light")
  document.documentElement.dataset.theme = theme.value
}

/** Put the palette into the page, and follow the system. */
export function startTheme(): void {
  const sheet = new CSSStyleSheet()
  sheet.replaceSync(
    `:root{color-scheme:light;${rules("light")}}:root[data-theme="dark"]{color-scheme:dark;${rules("dark")}}${fills()}`,
  )
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet]
  dark.addEventListener("change", apply)
  apply()
}
