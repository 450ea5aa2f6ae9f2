// Starts the page.
import { render } from "preact"
import { look, watchSleep } from "./api/connection"
import { loadAll } from "./app/outlet"
import { listen } from "./app/router"
import { Shell } from "./app/Shell"
import { startTheme } from "./app/theme"
import "./style/base.css"
import "./style/parts.css"

startTheme()
listen()
watchSleep()
void look()
loadAll()
render(<Shell />, document.getElementById("app") as HTMLElement)
