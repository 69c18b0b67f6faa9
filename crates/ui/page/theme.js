// Runs before the page is drawn, so that it is drawn in the chosen theme.
(() => {
  const root = document.documentElement;
  const chosen = localStorage.getItem("theme") || "";
  const apply = (theme) => { theme ? root.dataset.theme = theme : delete root.dataset.theme; };
  apply(chosen);
  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = chosen;
    select.addEventListener("change", () => {
      localStorage.setItem("theme", select.value);
      apply(select.value);
      document.dispatchEvent(new Event("themechange"));
    });
  });
})();
