package access

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// claims are what a JSON Web Token says of itself (RFC 7519). Nobody has verified them: they decide which limit a token
// counts against, and when it is asked about again, and never that it is accepted.
type claims struct {
	Audience audiences `json:"aud"`
	Expires  float64   `json:"exp"` // seconds since 1970; 0: it does not say
}

// audiences is one text, or a list of them.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// claimsOf reads those of a token. They are empty if it is no JSON Web Token.
func claimsOf(token string) (c claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &c) != nil {
		return claims{}
	}
	return c
}

// expires is when the token does; zero: it does not say.
func (c claims) expires() time.Time {
	if c.Expires <= 0 || c.Expires > math.MaxInt32*100 {
		return time.Time{}
	}
	return time.Unix(int64(c.Expires), 0)
}

// clocksDiffer bounds how far this machine's clock may be from that of the API server.
const clocksDiffer = time.Minute

// looksValid says whether a token is, by what it says of itself: for the audience, and not expired.
func looksValid(token, audience string, now time.Time) bool {
	c := claimsOf(token)
	end := c.expires()
	return slices.Contains(c.Audience, audience) && (end.IsZero() || now.Before(end.Add(clocksDiffer)))
}
