// A sentence in which steps, items, ranks and layers are links.
import { linked, type Whose } from "../app/words"
import { Go } from "./Go"

export function Linked({ text, whose }: { text: string; whose: Whose }) {
  let at = 0
  return (
    <>
      {linked(text, whose).map(piece => {
        at += piece.text.length
        return piece.code ? (
          <code key={at}>{piece.text}</code>
        ) : (
          <Go key={at} to={piece.to}>
            {piece.text}
          </Go>
        )
      })}
    </>
  )
}
