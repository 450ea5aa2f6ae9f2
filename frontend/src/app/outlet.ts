// Which page is shown: finds it by the address, and loads its file.
import type { FunctionComponent } from "preact"
import { useEffect, useState } from "preact/hooks"
import { connection, look, lost, onBack } from "../api/connection"
import type { Params } from "./address"
import { find, PAGES, type PageEntry, type PageProps } from "./pages"
import { place } from "./router"

export type Shown =
  | { kind: "page"; Page: FunctionComponent<PageProps>; params: Params }
  | { kind: "loading" | "missing" | "failed" }

const loaded = new Map<PageEntry, FunctionComponent<PageProps>>()

async function load(page: PageEntry): Promise<boolean> {
  try {
    loaded.set(page, (await page.load()).default)
    return true
  } catch {
    return false
  }
}

const IDLE = 1500 // ms after the first page

/** Load all pages when there is time: they are small, and then the server may be away for a while. */
export function loadAll(): void {
  setTimeout(() => {
    for (const page of PAGES) if (!loaded.has(page)) void load(page)
  }, IDLE)
}

/** The page of the address. While its file comes, there is none; it is asked for again when the server is back. */
export function useLocationPage(): Shown {
  const [, again] = useState(0)
  const [failed, setFailed] = useState(false)
  const found = find(place.value.path)
  const page = found?.page
  useEffect(() => {
    if (!page || loaded.has(page)) return
    const ask = async () => {
      const there = await load(page)
      setFailed(!there)
      again(count => count + 1)
      if (!there && !(await look())) void lost() // if the server is there, its files are of another version
    }
    void ask()
    return onBack(() => !loaded.has(page) && void ask())
  }, [page])
  if (!found) return { kind: "missing" }
  const Page = loaded.get(found.page)
  if (Page) return { kind: "page", Page, params: found.params }
  return { kind: failed && connection.value.kind === "ok" ? "failed" : "loading" }
}
