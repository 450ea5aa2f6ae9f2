// The frame around every page: bar, messages about the server, the page itself, the command palette.
import { useEffect, useMemo } from "preact/hooks"
import { Banner } from "../parts/Banner"
import { Palette } from "../parts/Palette"
import { Empty } from "../parts/States"
import { to } from "./address"
import { type Command, paletteOpen, useCommands } from "./commands"
import { useLocationPage } from "./outlet"
import { chooseTheme, theme } from "./theme"

export function Shell() {
  const found = useLocationPage()
  useKeys()
  useCommands(useShellCommands())
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <Banner />
      {found.kind === "page" ? <found.Page params={found.params} /> : <Elsewhere kind={found.kind} />}
      <Palette />
    </>
  )
}

function Elsewhere({ kind }: { kind: "loading" | "missing" | "failed" }) {
  if (kind === "loading") return <main id="content" aria-busy="true" />
  return (
    <main id="content">
      {kind === "missing" ? (
        <Empty title="There is no such page">
          The address is wrong, or from another version of Sonde. Go to <a href={to.runs()}>all runs</a>.
        </Empty>
      ) : (
        <Empty title="This page cannot be loaded">
          The server may have been updated or stopped.{" "}
          <button type="button" class="link" onClick={() => window.location.reload()}>
            Reload
          </button>
          .
        </Empty>
      )}
    </main>
  )
}

function useKeys(): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const typing = (event.target as Element | null)?.matches?.("input, textarea, select, [contenteditable]")
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault()
        paletteOpen.value = !paletteOpen.value
      } else if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault()
        paletteOpen.value = true
      }
    }
    window.addEventListener("keydown", pressed)
    return () => window.removeEventListener("keydown", pressed)
  }, [])
}

function useShellCommands(): Command[] {
  const other = theme.value === "dark" ? "light" : "dark"
  return useMemo(
    () => [
      { name: "All runs", to: to.runs() },
      { name: `Use the ${other} theme`, act: () => chooseTheme(other) },
      { name: "Use the system theme", act: () => chooseTheme(null) },
    ],
    [other],
  )
}
