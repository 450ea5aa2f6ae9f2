// One line above the page when the server is not as it was: what is going on, and what to do.
import { about, connection } from "../api/connection"

export function Banner() {
  const state = connection.value
  if (state.kind === "ok") return null
  return (
    <div class={`banner ${state.kind === "updated" ? "info" : "warn"}`} role="status">
      {state.kind === "down" && (
        <span>
          <b>The server does not answer.</b> It was stopped, or the connection is lost. Start it again with{" "}
          <code>sonde ui{about.value ? ` ${about.value.folder}` : ""}</code>; this page continues automatically.
        </span>
      )}
      {state.kind === "token" && (
        <span>
          <b>The server has a new token.</b> Open the address that <code>sonde ui</code> printed; this page then
          continues automatically.
        </span>
      )}
      {state.kind === "updated" && (
        <span>
          <b>Sonde was updated</b> from {state.from} to {state.to}.{" "}
          <button type="button" class="link" onClick={() => window.location.reload()}>
            Reload this page
          </button>
        </span>
      )}
    </div>
  )
}
