// Where the browser is: a signal that follows the address bar, and the ways to change it.
import { signal } from "@preact/signals"
import { useEffect } from "preact/hooks"
import { format, type Place, parse } from "./address"

const here = () => parse(window.location.pathname + window.location.search)

/** The address that is shown. Components that read it are drawn again when it changes. */
export const place = signal<Place>(here())

/** Go to an address. `replace`: without a new entry in the history, for what one does not want to walk back through. */
export function go(address: string, { replace = false } = {}): void {
  if (address === window.location.pathname + window.location.search) return
  const same = parse(address).path === place.value.path
  if (replace) window.history.replaceState(null, "", address)
  else window.history.pushState(null, "", address)
  place.value = here()
  if (!same) window.scrollTo(0, 0)
}

/** Change some parameters of the view, and keep the others. Null removes one. */
export function setQuery(changed: Record<string, string | number | null>, options: { replace?: boolean } = {}): void {
  go(format(place.value.path, { ...place.value.query, ...changed }), options)
}

/** Follow the buttons of the browser, and links to our own pages without loading them anew. */
export function listen(): void {
  window.addEventListener("popstate", () => {
    place.value = here()
  })
  document.addEventListener("click", event => {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return
    const link = (event.target as Element | null)?.closest?.("a")
    if (!link?.href || link.target || link.hasAttribute("download") || link.origin !== window.location.origin) return
    if (link.pathname.startsWith("/api/")) return
    event.preventDefault()
    if (link.hash && link.pathname === window.location.pathname && link.search === window.location.search) {
      window.history.replaceState(null, "", link.href)
      toHash()
    } else go(link.pathname + link.search)
  })
}

function toHash(): void {
  const name = decodeURIComponent(window.location.hash.slice(1))
  if (!name) return
  const found = document.getElementById(name)
  found?.scrollIntoView({ block: "center" })
  if (found?.tabIndex === -1) found.focus({ preventScroll: true })
}

/** Shows what the address names behind its `#`, once the component is there. */
export function useHash(): void {
  useEffect(toHash, [])
}
