package dashboard

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// tokenHeader carries the token of requests with side effects.
const tokenHeader = "X-Rota-Token"

// policy only lets the page load its own files, and keeps scripts from parsing text as HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"

// guard rejects requests that other sites make through the browser, and sets the security headers.
func guard(hosts []string, next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !allowed(r.Host, hosts) {
			refuse(w, http.StatusMisdirectedRequest,
				"the dashboard does not serve this host name: use the address that `rota` printed")
			return
		}
		// Other sites may only link to the page itself. Browsers too old for this header cannot read the answers across
		// origins, but could still send the requests.
		site := r.Header.Get("Sec-Fetch-Site")
		if r.URL.Path != "/" && site != "" && site != "same-origin" && site != "none" {
			refuse(w, http.StatusForbidden, "only the dashboard's own page may request this")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowed reports whether a request may have this Host header. With DNS rebinding, a site points its own name at this
// address, so the header contains that name. IP addresses are therefore harmless.
func allowed(host string, hosts []string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "localhost" || slices.Contains(hosts, name) {
		return true
	}
	_, err = netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil
}

// same compares in constant time.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
