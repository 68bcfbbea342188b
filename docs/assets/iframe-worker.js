// Lets the search work in a page opened from a disk (file://), where browsers start no Worker: its script runs in a hidden
// frame instead. The theme would load such a script from another host.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget { // the theme's script looks for this name
    constructor(url) {
      super();
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      this.loaded = new Promise((resolve, reject) => {
        const script = scope.document.createElement("script");
        Object.assign(script, { src: url, onload: resolve, onerror: reject });
        scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        scope.document.body.append(script);
      });
    }
    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
