// All pages. A new one gets a line here, an address in `address.ts` and a file below `pages/`; the README says how.
import type { FunctionComponent } from "preact"
import type { Feature } from "../api/types"
import { match, type Params, parse } from "./address"

export interface PageProps {
  params: Params
}

export interface PageEntry {
  path: string
  load: () => Promise<{ default: FunctionComponent<PageProps> }>
  /** A page of a run that stands in the row of tabs. `needs`: only if the run has that. */
  tab?: { label: string; needs?: Feature }
  /** The label of the tab that it belongs to, where the path does not say so. */
  under?: string
}

export const PAGES: PageEntry[] = [
  { path: "/", load: () => import("../pages/runs/Runs") },
  { path: "/compare", load: () => import("../pages/compare/Compare") },
  { path: "/runs/:run", tab: { label: "Overview" }, load: () => import("../pages/run/Run") },
  { path: "/runs/:run/steps", tab: { label: "Steps", needs: "steps" }, load: () => import("../pages/steps/Steps") },
  { path: "/runs/:run/steps/:rank/:step", load: () => import("../pages/step/Step") },
  {
    path: "/runs/:run/batches/:rank/:loader/:round/:batch",
    under: "Steps",
    load: () => import("../pages/batch/Batch"),
  },
  { path: "/runs/:run/items", tab: { label: "Items", needs: "items" }, load: () => import("../pages/items/Items") },
  { path: "/runs/:run/items/*index", load: () => import("../pages/item/Item") },
  { path: "/runs/:run/timeline", tab: { label: "Timeline" }, load: () => import("../pages/timeline/Timeline") },
  {
    path: "/runs/:run/layers",
    tab: { label: "Layers", needs: "layers" },
    load: () => import("../pages/layers/Layers"),
  },
  { path: "/runs/:run/layers/*layer", load: () => import("../pages/layers/Layer") },
  {
    path: "/runs/:run/learning",
    tab: { label: "Learning", needs: "learning" },
    load: () => import("../pages/learning/Learning"),
  },
  {
    path: "/runs/:run/samples",
    tab: { label: "Samples", needs: "samples" },
    load: () => import("../pages/samples/Samples"),
  },
  { path: "/runs/:run/hosts", tab: { label: "Hosts", needs: "hosts" }, load: () => import("../pages/hosts/Hosts") },
  {
    path: "/runs/:run/blackbox",
    tab: { label: "Black box", needs: "blackbox" },
    load: () => import("../pages/blackbox/BlackBox"),
  },
  {
    path: "/runs/:run/traces",
    tab: { label: "Traces", needs: "traces" },
    load: () => import("../pages/traces/Traces"),
  },
  { path: "/runs/:run/traces/:trace", load: () => import("../pages/traces/Trace") },
  { path: "/runs/:run/sql", tab: { label: "SQL" }, load: () => import("../pages/sql/Sql") },
]

export interface Found {
  page: PageEntry
  params: Params
}

/** The page of a path, or null. */
export function find(path: string): Found | null {
  for (const page of PAGES) {
    const params = match(page.path, path)
    if (params) return { page, params }
  }
  return null
}

/** Whether there is a page at an address: links to what is not built yet are drawn as plain text. */
export function exists(address: string): boolean {
  return find(parse(address).path) !== null
}
