"use strict";

// The reader's system decides between dark and light; the button overrules it, and is remembered where the browser allows.
{
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => {
    try { return localStorage.getItem("stepscope-theme"); } catch { return null; }
  };
  const remember = (theme) => {
    try { localStorage.setItem("stepscope-theme", theme); } catch { /* a file opened from disk may have no storage */ }
  };
  const theme = remembered();
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
    root.dataset.theme = dark ? "light" : "dark";
    remember(root.dataset.theme);
  });
}
