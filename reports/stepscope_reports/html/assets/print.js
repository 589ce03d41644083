// On paper everything is open, and the timeline is a picture of the whole step.
{
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open]):not(#chooser)")];
    for (const one of closed) one.open = true;
    timeline?.fixed(700);
  });
  addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
    timeline?.fixed(0);
  });
}
