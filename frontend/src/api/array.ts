// Whole arrays: one line of JSON, then float64 numbers.
import { lost } from "./connection"
import type { Problem } from "./request"
import type { ArrayHead } from "./types"

export interface Numbers {
  head: ArrayHead
  values: Float64Array
}

/** Reads an answer of `/arrays`. */
export function unpack(content: ArrayBuffer): Numbers {
  const bytes = new Uint8Array(content)
  const end = bytes.indexOf(10)
  if (end < 0) throw new Error("the answer has no head")
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end))) as ArrayHead
  return { head, values: new Float64Array(content, end + 1) }
}

/** Asks for an array. */
export async function askArray(path: string): Promise<Numbers | Problem> {
  try {
    const answer = await fetch(path)
    if (answer.ok) return unpack(await answer.arrayBuffer())
    const data = (await answer.json().catch(() => null)) as { error?: string } | null
    return { status: answer.status, message: data?.error ?? "The array cannot be read." }
  } catch {
    void lost()
    return { status: 0, message: "The server does not answer." }
  }
}
