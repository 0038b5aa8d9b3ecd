package notice

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks (https://www.standardwebhooks.com).
const (
	IDHeader        = "webhook-id"
	TimestampHeader = "webhook-timestamp"
	SignatureHeader = "webhook-signature"
)

// secretPrefix begins a secret in the form of Standard Webhooks.
const secretPrefix = "whsec_"

// ParseSecret reads a secret in the form of Standard Webhooks.
func ParseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(secret) < 24 {
		return nil, errors.New("the secret must be " + secretPrefix +
			" and at least 24 bytes in base64: make one with: echo " + secretPrefix + "$(openssl rand -base64 32)")
	}
	return secret, nil
}

// Sign returns the signature of Standard Webhooks, version 1: an HMAC-SHA256 of ID, time and body.
func Sign(secret []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
