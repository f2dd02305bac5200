# SPDX-License-Identifier: Apache-2.0
"""Words with which some questions begin, so that all kinds of tasks occur."""

# Before a text to be shortened.
SUMMARIES = ["Summarize: ", "Summarize: ", "Summarize the following text: ",
             "Give a short summary of this: ", "What are the main points?\n"]

# For a question about a text.
QUESTIONS = ["Who ", "What is ", "What ", "When did ", "Where ", "Why ",
             "How many ", "How ", "Which ", "In which year ", "Does "]

_LANGUAGES = ["German", "French", "Spanish", "Italian", "Dutch", "Polish"]
_NAMES = ["Anna", "Ben", "Carla", "David", "Emma", "Frank", "Grace", "Hassan",
          "Ivy", "John", "Kim", "Liam", "Maria", "Nina", "Omar", "Paul",
          "Rosa", "Sam", "Tina", "Victor"]
_SUMS = ["buys", "has", "earns", "sells", "spends", "reads", "wants to",
         "bakes", "runs", "collected", "ordered", "drives", "saved", "needs",
         "is", "went", "planted", "works"]

_TRANSLATION = ([f"Translate {name} to English: " for name in _LANGUAGES] * 2 +
                ["Translate German to English: Die ",
                 "Translate German to English: Der ",
                 "Translate German to English: Das ",
                 "Translate German to English: In ",
                 "Translate German to English: Ein ",
                 "Translate German to English: Es ",
                 "Translate German to English: "] * 3 +
                ["Translate to French: ", "How do you say in Spanish: "])

_SUMS_IN_WORDS = ([f"{name} {_SUMS[(7 * i + j) % len(_SUMS)]} "
                   for i, name in enumerate(_NAMES) for j in range(2)] +
                  ["A train ", "A farmer has ", "There are ", "If a ",
                   "A store sells ", "A class of ", "The price of ",
                   "Calculate ", "Solve "])

_ANSWERS = (["Who played ", "Who wrote ", "Who is ", "Who was ", "Who sings ",
             "What is ", "What is the ", "What does ", "What was the ",
             "When was ", "When did ", "When is ", "Where is ", "Where was ",
             "Where did ", "How many ", "How long ", "How does ", "Which ",
             "Name the ", "Why does ", "Is it true that "] * 2)

_CHAT = ["Write a ", "Write an essay about ", "Write a short story about ",
         "Write a Python function ", "Write a program that ",
         "Write a long article about ", "Write a detailed report on ",
         "Explain ", "Explain how ", "Describe ", "Compare ", "Give me a list ",
         "Imagine you are ", "Pretend to be ", "Act as a ", "Create a ",
         "Compose ", "Draft an email ", "Help me ", "Suggest ", "Discuss ",
         "Outline ", "Tell me about ", "Can you ", "How do I ", "I need ",
         "Given the following ", "Extract ", "Rewrite ", "Classify ",
         "Evaluate ", "Identify ", "Design ", "Implement ", "Analyze ",
         "In the field of ", "Provide ", "Develop ", "Which of ", "The ",
         "Long history of ", "A news report: "]

OPENERS = _TRANSLATION + _SUMS_IN_WORDS + _ANSWERS + _CHAT
