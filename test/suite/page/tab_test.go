package page

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

type object map[string]any

// tab is a page in a browser context of its own: no password, no cache and no cookie of another test is in it.
type tab struct {
	*testing.T
	browser *chromium
	context string
	session string

	mu       sync.Mutex
	errors   []string // of scripts, of the policy, of the console
	requests []string // that the page made
	answer   func(url string) (status int, header map[string]string, body string)
	password string
	asked    int // how often the browser wanted the password
}

func newTab(t *testing.T) *tab {
	t.Helper()
	p := &tab{T: t, browser: browser(t)}
	var made struct {
		BrowserContextID string
		TargetID         string
		SessionID        string
	}
	p.must(p.browser.call(p.limit(), "", "Target.createBrowserContext", object{}, &made))
	p.context = made.BrowserContextID
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		check.Report(t, p.browser.call(ctx, "", "Target.disposeBrowserContext", object{"browserContextId": p.context}, nil))
	})
	p.must(p.browser.call(p.limit(), "", "Target.createTarget", object{"url": "about:blank", "browserContextId": p.context}, &made))
	p.must(p.browser.call(p.limit(), "", "Target.attachToTarget", object{"targetId": made.TargetID, "flatten": true}, &made))
	p.session = made.SessionID
	p.browser.mu.Lock()
	p.browser.sessions[p.session] = p.event
	p.browser.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.do(domain+".enable", object{})
	}
	p.do("Fetch.enable", object{"handleAuthRequests": true})
	p.size(1440, 900, false)
	p.dark(false)
	return p
}

func (p *tab) must(err error) {
	p.Helper()
	check.OK(p, err)
}

func (p *tab) limit() context.Context {
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	context.AfterFunc(p.Context(), cancel)
	return ctx
}

func (p *tab) do(method string, params any) {
	p.Helper()
	p.must(p.browser.call(p.limit(), p.session, method, params, nil))
}

// event is called for what the browser reports, in its order.
func (p *tab) event(method string, params json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var e struct {
		RequestID          string
		ResponseStatusCode int
		Request            struct{ URL string }
		AuthChallenge      *struct{ Source string }
		ExceptionDetails   struct {
			Text      string
			Exception struct{ Description string }
		}
		Entry struct{ Level, Text, Source string }
		Type  string
		Args  []struct{ Value any }
	}
	if json.Unmarshal(params, &e) != nil {
		return
	}
	switch method {
	case "Fetch.authRequired":
		p.asked++
		response := object{"response": "CancelAuth"}
		if p.password != "" {
			response = object{"response": "ProvideCredentials", "username": user, "password": p.password}
		}
		go p.browser.send(p.session, "Fetch.continueWithAuth", object{"requestId": e.RequestID, "authChallengeResponse": response}, nil) //nolint:errcheck // the test sees that no answer comes
	case "Fetch.requestPaused":
		p.requests = append(p.requests, e.Request.URL)
		go p.proceed(e.RequestID, e.Request.URL, p.answer)
	case "Runtime.exceptionThrown":
		p.errors = append(p.errors, e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		p.errors = append(p.errors, fmt.Sprint(e.Type, " ", e.Args))
	case "Log.entryAdded":
		if e.Entry.Source != "network" { // the status of a failed request
			p.errors = append(p.errors, e.Entry.Source+": "+e.Entry.Text)
		}
	case "Page.javascriptDialogOpening":
		p.errors = append(p.errors, "a dialog was opened")
	}
}

// proceed lets a request go on, or answers it as the test says.
func (p *tab) proceed(id, url string, answer func(string) (int, map[string]string, string)) {
	if answer != nil {
		status, header, body := answer(url)
		if status < 0 {
			p.browser.send(p.session, "Fetch.failRequest", object{"requestId": id, "errorReason": "ConnectionRefused"}, nil) //nolint:errcheck // the test sees that no answer comes
			return
		}
		if status > 0 {
			headers := []object{{"name": "Content-Type", "value": "application/json"}}
			for name, value := range header {
				headers = append(headers, object{"name": name, "value": value})
			}
			p.browser.send(p.session, "Fetch.fulfillRequest", object{ //nolint:errcheck // likewise
				"requestId": id, "responseCode": status, "responseHeaders": headers, "body": base64.StdEncoding.EncodeToString([]byte(body)),
			}, nil)
			return
		}
	}
	p.browser.send(p.session, "Fetch.continueRequest", object{"requestId": id}, nil) //nolint:errcheck // likewise
}

// intercept has requests answered by the test: 0 lets one go on, -1 fails it as a controller that is away does.
func (p *tab) intercept(answer func(url string) (int, map[string]string, string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *tab) size(width, height int, phone bool) {
	p.Helper()
	scale := 1
	if phone {
		scale = 2
	}
	p.do("Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone})
}

func (p *tab) dark(is bool) {
	p.Helper()
	scheme := "light"
	if is {
		scheme = "dark"
	}
	p.do("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": scheme}}})
}

// open shows an address and waits until there is what the view is about.
func (p *tab) open(url string) {
	p.Helper()
	p.do("Page.navigate", object{"url": url})
	p.until("the page is shown", `document.readyState === 'complete' && document.querySelector('main > div, main > section') !== null && document.getElementById('seen')?.textContent === 'Live'`)
}

// evaluate an expression in the page, and wait for it if it is a promise.
func (p *tab) evaluate(expression string) (value json.RawMessage, err error) {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err = p.browser.call(p.limit(), p.session, "Runtime.evaluate", object{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if err == nil && r.ExceptionDetails != nil {
		err = fmt.Errorf("%s %s", r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	return r.Result.Value, err
}

// run is the value of an expression.
func run[T any](p *tab, expression string) (value T) {
	p.Helper()
	text, err := p.evaluate(expression)
	if err != nil {
		p.Fatalf("%.300s: %v", expression, err)
	}
	if len(text) > 0 {
		p.must(json.Unmarshal(text, &value))
	}
	return value
}

// until waits until an expression is true. While the page is replaced by another one, it is an error.
func (p *tab) until(what, expression string) {
	p.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		is, err := p.evaluate("Boolean(" + expression + ")")
		if err == nil && string(is) == "true" {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			p.screenshot("failed-" + strings.ReplaceAll(p.Name(), "/", "-"))
			p.Fatalf("never: %s: %s: %v\nthe page says: %s\nthe browser reports: %v", what, expression, err, run[string](p, "document.body.innerText"), p.errors)
		}
	}
}

// press presses a key as a keyboard does.
func (p *tab) press(key string) {
	p.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "ArrowDown": 40, "Escape": 27}
	down := object{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	if key == "Enter" {
		down["text"] = "\r"
	}
	p.do("Input.dispatchKeyEvent", down)
	p.do("Input.dispatchKeyEvent", object{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]})
}

func (p *tab) write(text string) {
	p.Helper()
	p.do("Input.insertText", object{"text": text})
}

// tabTo presses the tabulator until an element has the focus.
func (p *tab) tabTo(selector string) {
	p.Helper()
	for range 200 {
		if run[bool](p, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			return
		}
		p.press("Tab")
	}
	p.Fatalf("200 presses of the tabulator do not reach %s", selector)
}

// screenshot writes the visible part to a file in the directory of HOLDFAST_SCREENSHOTS, or bin/screenshots.
func (p *tab) screenshot(name string) {
	p.Helper()
	p.picture(name, false)
}

func (p *tab) picture(name string, whole bool) {
	p.Helper()
	var r struct{ Data []byte }
	p.must(p.browser.call(p.limit(), p.session, "Page.captureScreenshot", object{"format": "png", "captureBeyondViewport": whole}, &r))
	dir := os.Getenv("HOLDFAST_SCREENSHOTS")
	if dir == "" {
		dir = "../../../bin/screenshots"
	}
	p.must(os.MkdirAll(dir, 0o755))
	p.must(os.WriteFile(filepath.Join(dir, name+".png"), r.Data, 0o644)) //nolint:gosec // for people to look at
}

// faultless fails the test for what scripts, the policy or the console reported.
func (p *tab) faultless() {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.errors {
		p.Errorf("the browser reports %s", e)
	}
}
