// The command palette: Ctrl-K, type, Enter.
import { useLayoutEffect, useRef, useState } from "preact/hooks"
import { type Command, paletteOpen, suggestions } from "../app/commands"
import { go } from "../app/router"

export function Palette() {
  return paletteOpen.value ? <OpenPalette /> : null
}

function OpenPalette() {
  const dialog = useRef<HTMLDialogElement>(null)
  const [text, setText] = useState("")
  const [chosen, setChosen] = useState(0)
  const found = suggestions(text)
  const at = Math.min(chosen, Math.max(found.length - 1, 0))
  useLayoutEffect(() => dialog.current?.showModal(), []) // at once: the next key is typed into it
  const close = () => {
    paletteOpen.value = false
  }
  const run = (command: Command | undefined) => {
    if (!command) return
    close()
    if (command.to) go(command.to)
    command.act?.()
  }
  const pressed = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (move) {
      event.preventDefault()
      setChosen((at + move + found.length) % Math.max(found.length, 1))
    } else if (event.key === "Enter") {
      event.preventDefault()
      run(found[at])
    }
  }
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes a dialog by itself
    <dialog
      class="palette"
      ref={dialog}
      aria-label="Commands"
      onClose={close}
      onClick={event => event.target === dialog.current && close()}
    >
      <input
        type="text"
        role="combobox"
        aria-label="Search for a command, a run, a step or an item"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length ? `palette-${at}` : undefined}
        placeholder="Search, or type: step 340, item 8412"
        spellcheck={false}
        autocomplete="off"
        value={text}
        onInput={event => {
          setText(event.currentTarget.value)
          setChosen(0)
        }}
        onKeyDown={pressed}
      />
      <div id="palette-list" role="listbox" aria-label="Commands">
        {found.map((command, place) => (
          // biome-ignore lint/a11y/useFocusableInteractive: the same
          // biome-ignore lint/a11y/useKeyWithClickEvents: keys are handled by the input
          <div
            key={`${command.name}-${command.to ?? ""}`}
            id={`palette-${place}`}
            role="option"
            aria-selected={place === at}
            onMouseMove={() => setChosen(place)}
            onClick={() => run(command)}
          >
            <span>{command.name}</span>
            {command.hint && <span class="soft">{command.hint}</span>}
          </div>
        ))}
      </div>
      {found.length === 0 && <p class="soft">No match. Try the name of a run, `step 12` or `item 7`.</p>}
    </dialog>
  )
}
