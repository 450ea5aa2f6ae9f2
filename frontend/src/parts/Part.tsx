// A part of a page: its title, what it tells, and the content.
import type { ComponentChildren } from "preact"

interface Props {
  title: string
  told?: string
  /** Beside the title: a link to more, or a choice. */
  more?: ComponentChildren
  children: ComponentChildren
}

export function Part({ title, told, more, children }: Props) {
  return (
    <section class="part" aria-label={title}>
      <div class="head">
        <h2>{title}</h2>
        {more}
      </div>
      {told && <p class="told">{told}</p>}
      {children}
    </section>
  )
}
