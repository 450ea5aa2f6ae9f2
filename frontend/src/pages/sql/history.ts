// The queries that were asked in this browser, the newest first.
const PLACE = "sonde-queries"
const MOST = 40

export function remembered(): string[] {
  try {
    const found: unknown = JSON.parse(window.localStorage.getItem(PLACE) ?? "[]")
    return Array.isArray(found) ? found.filter((one): one is string => typeof one === "string") : []
  } catch {
    return []
  }
}

export function remember(query: string): void {
  const rest = remembered().filter(one => one !== query)
  try {
    window.localStorage.setItem(PLACE, JSON.stringify([query, ...rest].slice(0, MOST)))
  } catch {
    // no room, or not allowed: then there is no history
  }
}
