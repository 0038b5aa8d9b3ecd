// Package oracle judges what a rota did during a fault and after it, from records that members cannot forge. It uses no
// clock, no API server, and no code that members run, except to compute a key's slot and to decode a table.
package oracle
