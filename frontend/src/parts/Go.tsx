// A link to a page of ours. If there is no such page (yet), it is plain text.
import type { ComponentChildren } from "preact"
import { exists } from "../app/pages"

export function Go(props: { to: string | null; class?: string; label?: string; children: ComponentChildren }) {
  if (props.to === null || !exists(props.to)) return <span class={props.class}>{props.children}</span>
  return (
    <a href={props.to} class={props.class} aria-label={props.label}>
      {props.children}
    </a>
  )
}
