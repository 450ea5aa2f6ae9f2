// Whole arrays: one line of JSON, then float64 numbers.
import { lost } from "./connection"
import type { Problem } from "./request"
import type { ArrayHead } from "./types"

export interface Numbers<Head = ArrayHead> {
  head: Head
  values: Float64Array
}

/** Reads an answer of `/arrays`, or another one that is packed alike. */
export function unpack<Head = ArrayHead>(content: ArrayBuffer): Numbers<Head> {
  const bytes = new Uint8Array(content)
  const end = bytes.indexOf(10)
  if (end < 0) throw new Error("the response has no header")
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end))) as Head
  return { head, values: new Float64Array(content, end + 1) }
}

/** Asks for an array. */
export async function askArray<Head = ArrayHead>(path: string, signal?: AbortSignal): Promise<Numbers<Head> | Problem> {
  try {
    const answer = await fetch(path, signal ? { signal } : {})
    if (answer.ok) return unpack<Head>(await answer.arrayBuffer())
    const data = (await answer.json().catch(() => null)) as { error?: string } | null
    return { status: answer.status, message: data?.error ?? "The array cannot be read." }
  } catch {
    if (!signal?.aborted) void lost()
    return { status: 0, message: "The server does not answer." }
  }
}
