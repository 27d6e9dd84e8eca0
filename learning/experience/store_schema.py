"""Tables of the experience store, and how files of earlier versions get them."""

from __future__ import annotations

VERSION = 5
_SIZES = """
CREATE TABLE sizes (
    place INTEGER PRIMARY KEY AUTOINCREMENT, robot_id TEXT, boot_id TEXT, episode INTEGER, last_sequence INTEGER,
    bytes INTEGER, UNIQUE (robot_id, boot_id, episode))
"""
_SKIPPED = """
CREATE TABLE skipped (robot_id TEXT, boot_id TEXT, first INTEGER, last INTEGER, missing INTEGER)
"""
_IDENTITY = """
CREATE TABLE identity (id TEXT NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(16))))
"""
SCHEMA = f"""
CREATE TABLE streams (robot_id TEXT, boot_id TEXT, acked INTEGER, PRIMARY KEY (robot_id, boot_id)) WITHOUT ROWID;
CREATE TABLE transitions (
    robot_id TEXT, boot_id TEXT, sequence INTEGER, episode INTEGER, step INTEGER, ended INTEGER,
    reward REAL, payload BLOB, source TEXT,
    PRIMARY KEY (robot_id, boot_id, sequence));
CREATE INDEX by_episode ON transitions (robot_id, boot_id, episode, step);
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, robot_id TEXT, boot_id TEXT, episode INTEGER, task TEXT,
    instruction TEXT, success INTEGER, steps INTEGER, policy_version TEXT, last_sequence INTEGER,
    kept INTEGER, stored INTEGER, sources TEXT, judged INTEGER, UNIQUE (robot_id, boot_id, episode));
CREATE TABLE reservoirs (task TEXT, success INTEGER, met INTEGER, PRIMARY KEY (task, success)) WITHOUT ROWID;
{_SIZES};
{_SKIPPED};
{_IDENTITY}
"""
MIGRATIONS = {
    1: f"""
ALTER TABLE transitions ADD COLUMN source TEXT;
ALTER TABLE episodes ADD COLUMN sources TEXT;
{_SIZES};
INSERT INTO sizes (robot_id, boot_id, episode, last_sequence, bytes)
    SELECT robot_id, boot_id, episode, max(sequence), sum(length(payload)) FROM transitions
    GROUP BY robot_id, boot_id, episode ORDER BY min(rowid)
""",
    2: _SKIPPED,
    3: """
ALTER TABLE episodes DROP COLUMN total_reward;
ALTER TABLE episodes ADD COLUMN judged INTEGER DEFAULT 1
""",
    4: _IDENTITY,
}
"""Version that a file has -> what brings it to the next. Version 1 did not know whose actions it held: its episodes
stay, of an unknown source, and no learner learns from them. Version 3 took what was called off for failures. Version 4
could not be told from another store in its folder."""
