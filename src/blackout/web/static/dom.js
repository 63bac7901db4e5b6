// Elements in few words.

export function make(tag, values = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export function field(label, control, hint = null) {
  const note = hint === null ? null : make("span", { className: "hint", id: `${control.id}-hint` }, hint);
  if (note) control.setAttribute("aria-describedby", note.id);
  return make("div", { className: "field" }, make("label", { htmlFor: control.id }, label), control, note);
}

export function tick(label, id, changed, checked = false) {
  const box = make("input", { type: "checkbox", id, checked, onchange: () => changed(box.checked) });
  return make("div", { className: "tick" }, box, make("label", { htmlFor: id }, label));
}

export function message(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

// The text of an element to the clipboard; where the browser does not allow that, it is selected. Gives what to say.
export async function copyText(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return "Copied.";
  } catch {
    getSelection().selectAllChildren(element);
    return "Selected: copy it with your keyboard.";
  }
}

// An element that is read out as soon as it changes.
export function alertLine() {
  return make("p", { className: "alert", role: "alert", hidden: true });
}
