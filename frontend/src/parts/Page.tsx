// The outline of a page: the bar with the way back, the tabs of a run, a heading, the content.
import type { ComponentChildren } from "preact"
import { useEffect, useRef } from "preact/hooks"
import { to } from "../app/address"
import { paletteOpen } from "../app/commands"
import { place } from "../app/router"

export interface Crumb {
  text: string
  to: string
}

interface Outline {
  /** For the tab of the browser. */
  title: string
  /** The way here, without this page itself. */
  crumbs?: Crumb[]
  /** What this page is called at the end of the way. */
  here?: string
  tabs?: ComponentChildren
  children: ComponentChildren
}

export function Page({ title, crumbs = [], here = title, tabs, children }: Outline) {
  const content = useRef<HTMLElement>(null)
  const path = place.value.path
  useEffect(() => {
    document.title = title === "Sonde" ? title : `${title} · Sonde`
  }, [title])
  // biome-ignore lint/correctness/useExhaustiveDependencies: once for each address
  useEffect(() => content.current?.focus({ preventScroll: true }), [path])
  return (
    <>
      <header class="bar">
        <nav aria-label="Breadcrumbs">
          <ol class="crumbs">
            <li>
              <a class="home" href={to.runs()} aria-label="Sonde: all runs">
                <Mark />
                <span>Sonde</span>
              </a>
            </li>
            {crumbs.map(one => (
              <li key={one.to}>
                <a href={one.to}>{one.text}</a>
              </li>
            ))}
            {here !== "Sonde" && <li aria-current="page">{here}</li>}
          </ol>
        </nav>
        <button
          type="button"
          class="search"
          title="Search, or run a command"
          aria-keyshortcuts="Control+K"
          onClick={() => {
            paletteOpen.value = true
          }}
        >
          <span>Search</span> <kbd>Ctrl K</kbd>
        </button>
      </header>
      {tabs}
      <main id="content" ref={content} tabIndex={-1}>
        {children}
      </main>
    </>
  )
}

function Mark() {
  return (
    <svg viewBox="0 0 32 32" width="20" height="20" aria-hidden="true">
      <path d="M16 3v10" stroke="currentColor" stroke-width="2.6" stroke-linecap="round" />
      <circle cx="16" cy="17" r="4.2" fill="currentColor" />
      <path
        d="M9 21.5a8 8 0 0 0 14 0M5 25a12.8 12.8 0 0 0 22 0"
        fill="none"
        stroke="currentColor"
        stroke-width="2.2"
        stroke-linecap="round"
      />
    </svg>
  )
}
