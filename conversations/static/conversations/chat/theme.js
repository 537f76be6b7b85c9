// Before anything is painted: the theme and the language that were chosen, or those of the system and the browser.
(() => {
  const page = document.documentElement;
  let theme = null;
  let language = null;
  try {
    theme = localStorage.getItem("evi-theme");
    language = localStorage.getItem("evi-language");
  } catch {
    // A browser that keeps nothing follows the system.
  }
  if (theme === "light" || theme === "dark") page.dataset.theme = theme;
  // A page that is there in one language only says which.
  if (document.currentScript.dataset.language) return;
  page.lang = language === "nl" || language === "en" ? language : navigator.language.startsWith("nl") ? "nl" : "en";
})();
